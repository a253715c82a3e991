package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshtrial/native/internal/servetest"
)

// row is a line of the access log.
type row struct {
	Latency   float64
	Timestamp int64
	Thread    int
	Iter      int64
	OK        bool
	Details   string
}

func start(t *testing.T, args ...string) (http, grpc string, stop func()) {
	t.Helper()
	var ready struct{ HTTP, GRPC string }
	args = append([]string{"serve", "-listen", "127.0.0.1:0", "-grpc", "127.0.0.1:0"}, args...)
	stop = servetest.Start(t, run, &ready, args...)
	return "http://" + ready.HTTP + "/events", ready.GRPC, stop
}

func receiveAll(t *testing.T, target string, args ...string) (result, []row) {
	t.Helper()
	folder := t.TempDir()
	jsonFile, logFile := filepath.Join(folder, "r.json"), filepath.Join(folder, "r.log")
	args = append([]string{"load", "-json", jsonFile, "-access-log-file", logFile}, append(args, target)...)
	if err := run(t.Context(), args, io.Discard); err != nil {
		t.Fatal(err)
	}
	var written result
	text, err := os.ReadFile(jsonFile)
	if err != nil || json.Unmarshal(text, &written) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	text, err = os.ReadFile(logFile)
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	for line := range strings.Lines(string(text)) {
		var one row
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		rows = append(rows, one)
	}
	return written, rows
}

func TestEveryEventArrivesInOrder(t *testing.T) {
	http, grpc, stop := start(t)
	for kind, target := range map[string]string{"SSE stream": http, "GRPC stream": grpc} {
		args := []string{"-qps", "400", "-c", "4", "-t", "500ms", "-size", "100"}
		code := "200"
		if target == grpc {
			args, code = append(args, "-grpc"), "OK"
		}
		written, rows := receiveAll(t, target, args...)
		if written.RunType != kind || written.SocketCount != 4 || written.RetCodes[code] != 200 || len(rows) != 200 ||
			len(written.FirstEvents) != 4 || written.DurationHistogram.Count != 200 || written.ErrorsDurationHistogram.Count != 0 {
			t.Errorf("%s: %d rows, %+v", kind, len(rows), written)
		}
		next := map[int]int64{}
		for _, one := range rows {
			if !one.OK || one.Iter != next[one.Thread] || one.Latency < 0 {
				t.Fatalf("%s: %+v is not the next of its stream", kind, one)
			}
			next[one.Thread]++
		}
	}
	stop()
}

func TestADelayOfSomeEventsIsFound(t *testing.T) {
	http, _, _ := start(t, "-delay", "5ms", "-delay-every", "10")
	_, rows := receiveAll(t, http, "-qps", "100", "-c", "2", "-t", "1s")
	for _, one := range rows {
		if delayed := one.Iter%10 == 9; delayed && one.Latency < 0.005 {
			t.Errorf("%+v took less than its delay", one)
		}
	}
}

func TestAnEventThatWasDueWhileTheStreamWasBlockedKeepsItsTime(t *testing.T) {
	asked := request{rate: 100, events: 4}
	var sent []time.Time
	block := 35 * time.Millisecond // beyond the moments at which events 1 and 2 are due, at 13 and 27 ms
	if err := (sender{every: 1}).send(t.Context(), asked, func(_ int64, event []byte) error {
		_, at, err := parseEvent(event)
		if sent = append(sent, at); len(sent) == 1 {
			time.Sleep(block)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for number := range 3 {
		if got, due := sent[number].Sub(sent[0]), asked.offset(int64(number)); got-due > time.Millisecond || due-got > time.Millisecond {
			t.Errorf("event %d has the time %v after the first, want %v", number, got, due)
		}
	}
}

func TestBrokenStreamsFail(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	now := func(number int64) string {
		return fmt.Sprintf("id: %d\ndata: %s\n\n", number, appendEvent(nil, number, time.Now(), nil))
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ends":
			_, _ = io.WriteString(w, now(0))
		case "/order":
			_, _ = io.WriteString(w, now(0)+now(2))
		case "/refuses":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/silent":
			_, _ = io.WriteString(w, now(0))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	for path, want := range map[string]string{"/ends": "EOF", "/order": "out of order", "/refuses": "503", "/silent": "time-out"} {
		written, rows := receiveAll(t, "http://"+listener.Addr().String()+path, "-qps", "20", "-t", "500ms", "-timeout", "100ms")
		last := rows[len(rows)-1]
		if len(rows) != 10 || last.OK || !strings.Contains(last.Details, want) || written.ErrorsDurationHistogram.Count < 9 {
			t.Errorf("%s: %d rows, the last %+v", path, len(rows), last)
		}
	}
}

func TestAnInterruptedLoadHasNoResult(t *testing.T) {
	target, _, _ := start(t)
	folder := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := run(ctx, []string{"load", "-qps", "10", "-t", "1h", "-json", filepath.Join(folder, "r.json"),
		"-access-log-file", filepath.Join(folder, "r.log"), target}, io.Discard)
	if _, missing := os.Stat(filepath.Join(folder, "r.json")); !errors.Is(err, errInterrupted) || missing == nil {
		t.Errorf("%v, and the result: %v", err, missing)
	}
}

func TestBadUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"serve or load": {}, "no host": {"serve", "-listen", ":80"}, "delay-every": {"serve", "-delay-every", "0"},
		"the target": {"load", "-qps=10"}, "no colon": {"load", "-H", "x", "a:1"},
		"above 0": {"load", "-c", "0", "-json", "j", "-access-log-file", "l", "a:1"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
