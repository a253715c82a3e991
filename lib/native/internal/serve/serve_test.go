package serve

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestListenWantsAHost(t *testing.T) {
	for _, address := range []string{":8080", "8080", ""} {
		var usage usageError
		if _, err := Listen(address); !errors.As(err, &usage) {
			t.Errorf("Listen(%q) = %v, want a usage error", address, err)
		}
	}
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
}

func TestParse(t *testing.T) {
	for _, test := range []struct {
		args  string
		usage bool
		out   string
	}{
		{"-version", false, "tool " + Version + " go"},
		{"-help", false, "usage of tool"},
		{"-no-such-flag", true, ""},
		{"left over", true, ""},
	} {
		var out bytes.Buffer
		err := Parse(flag.NewFlagSet("tool", flag.ContinueOnError), strings.Fields(test.args), &out)
		var usage usageError
		if errors.As(err, &usage) != test.usage || !strings.HasPrefix(out.String(), test.out) {
			t.Errorf("Parse(%q) = %v, printed %q", test.args, err, out.String())
		}
		if err == nil {
			t.Errorf("Parse(%q) lets the program go on", test.args)
		}
	}
}

func TestHTTPLetsARequestInFlightFinish(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel() // the end comes while this request is being answered
		time.Sleep(50 * time.Millisecond)
		_, _ = io.WriteString(w, "whole")
	})}
	ended := make(chan error, 1)
	go func() { ended <- HTTP(ctx, listener, server) }()
	response, err := http.Get("http://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(response.Body)
	if string(body) != "whole" {
		t.Errorf("body %q", body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestAllEndsTheOthersAndKeepsTheFirstError(t *testing.T) {
	first := errors.New("first")
	err := All(t.Context(),
		func(context.Context) error { return first },
		func(ctx context.Context) error { <-ctx.Done(); return errors.New("later") })
	if !errors.Is(err, first) {
		t.Errorf("All = %v", err)
	}
}
