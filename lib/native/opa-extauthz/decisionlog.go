package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// flushEvery limits how long a decision stays in the buffer.
const flushEvery = time.Second

// decisionLog appends one JSON line per decision. Lines are buffered and flushed once a second, like OPA's own decision
// log; one write call per request would measure the file system.
type decisionLog struct {
	mu              sync.Mutex
	file            *os.File
	buffer          *bufio.Writer
	written, failed atomic.Int64
	stop, stopped   chan struct{}
}

// decision is one line, with the field names of OPA's decision log.
type decision struct {
	DecisionID string         `json:"decision_id"`
	Timestamp  string         `json:"timestamp"`
	Query      string         `json:"query"`
	Input      map[string]any `json:"input"`
	Result     bool           `json:"result"`
	Metrics    map[string]int `json:"metrics"`
}

func openDecisionLog(path string) (*decisionLog, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("decision log: %w", err)
	}
	log := &decisionLog{
		file: file, buffer: bufio.NewWriterSize(file, 1<<16), stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	go log.flushLoop()
	return log, nil
}

func (l *decisionLog) write(start time.Time, query string, input map[string]any, allowed bool) {
	line := decision{
		Timestamp: start.UTC().Format(time.RFC3339Nano),
		Query:     query,
		Input:     withoutToken(input),
		Result:    allowed,
		Metrics:   map[string]int{"timer_server_handler_ns": int(time.Since(start))},
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line.DecisionID = strconv.FormatInt(l.written.Load()+1, 10)
	if err := json.NewEncoder(l.buffer).Encode(line); err != nil {
		l.failed.Add(1)
		return
	}
	l.written.Add(1)
}

// withoutToken copies input, including the headers, and masks the credential, which must not be logged.
func withoutToken(input map[string]any) map[string]any {
	masked := maps.Clone(input)
	inner := masked
	for _, key := range []string{"attributes", "request", "http", "headers"} {
		next, ok := inner[key].(map[string]any)
		if !ok {
			return masked
		}
		next = maps.Clone(next)
		inner[key] = next
		inner = next
	}
	if _, ok := inner["authorization"]; ok {
		inner["authorization"] = "(masked)"
	}
	return masked
}

func (l *decisionLog) flushLoop() {
	defer close(l.stopped)
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.flush()
		case <-l.stop:
			l.flush()
			return
		}
	}
}

func (l *decisionLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.buffer.Flush(); err != nil {
		// A full disk must not stop decisions. bufio keeps the error, so later writes count as failed.
		if l.failed.Add(1) == 1 {
			fmt.Fprintf(os.Stderr, "%s: decision log: %v\n", name, err)
		}
	}
}

// close writes the rest. No write may follow.
func (l *decisionLog) close() {
	close(l.stop)
	<-l.stopped
	l.file.Close()
}
