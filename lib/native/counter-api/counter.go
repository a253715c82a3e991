package main

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// counter is the application's whole state.
type counter struct {
	value atomic.Int64
	work  time.Duration
}

func newCounter(work time.Duration) *counter { return &counter{work: work} }

func (c *counter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /counter", func(w http.ResponseWriter, _ *http.Request) { c.answer(w, c.value.Add(1)) })
	mux.HandleFunc("GET /counter", func(w http.ResponseWriter, _ *http.Request) { c.answer(w, c.value.Load()) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return mux
}

// answer writes {"counter":N}. The length is set, so that the response is never chunked.
func (c *counter) answer(w http.ResponseWriter, value int64) {
	spin(c.work)
	body := strconv.AppendInt([]byte(`{"counter":`), value, 10)
	body = append(body, "}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // fails only when the client has gone
}

// spin keeps a CPU busy for d of wall time: a process with less than a core does less work.
func spin(d time.Duration) {
	if d <= 0 {
		return
	}
	for start := time.Now(); time.Since(start) < d; {
	}
}
