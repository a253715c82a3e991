// Package servetest runs the programs of this module in tests, as serve.Main does.
package servetest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
)

// Start runs a program and decodes its line of readiness into ready. The returned function ends the program as SIGTERM
// does and waits; an error of the program fails the test. The end of the test calls it, too.
func Start(t *testing.T, run func(context.Context, []string, io.Writer) error, ready any, args ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, args, writer)
		writer.Close()
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("end: %v", err)
		}
	})
	t.Cleanup(stop)
	line, err := bufio.NewReader(reader).ReadBytes('\n')
	if err != nil {
		t.Fatalf("not ready: %v", err)
	}
	if err := json.Unmarshal(line, ready); err != nil {
		t.Fatal(err)
	}
	return stop
}

// Stats decodes the answer of GET /stats at an admin address into stats.
func Stats(t *testing.T, admin string, stats any) {
	t.Helper()
	response, err := http.Get("http://" + admin + "/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(stats); err != nil {
		t.Fatal(err)
	}
}
