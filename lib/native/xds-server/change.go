package main

import (
	"slices"
	"time"
)

// change is one version of the whole configuration and its propagation to the proxies. The tracker's lock guards it.
type change struct {
	version   int
	service   string // whose endpoints changed; empty for the initial configuration
	endpoints int    // of the service, after the change
	update    uint64 // of the endpoint cache
	at        time.Time
	awaited   int
	pending   map[string]bool // nodes that have not acknowledged it
	taken     []time.Duration // by those that have, in order
	left      int             // proxies that disconnected instead
	done      chan struct{}   // closed when no proxy is awaited any more
}

func newChange(service string, update uint64, endpoints int) *change {
	return &change{
		version: 1, service: service, update: update, endpoints: endpoints,
		pending: map[string]bool{}, done: make(chan struct{}),
	}
}

// start starts the clock: at a push or, for the initial configuration, at the first stream.
func (c *change) start() {
	c.at = time.Now()
	c.check()
}

func (c *change) ack(node string) {
	if c.pending[node] {
		delete(c.pending, node)
		c.taken = append(c.taken, time.Since(c.at))
		c.check()
	}
}

func (c *change) leave(node string) {
	if c.pending[node] {
		delete(c.pending, node)
		c.left++
		c.check()
	}
}

func (c *change) check() {
	if len(c.pending) > 0 {
		return
	}
	select {
	case <-c.done:
	default:
		close(c.done)
	}
}

// report is a change as the admin interface reports it. Times are in seconds from its start; null means not yet.
type report struct {
	UnixS     float64  `json:"taken_unix_s,omitempty"` // when it was accepted, by the machine's clock
	Version   int      `json:"version"`
	Service   string   `json:"service"`
	Endpoints int      `json:"endpoints,omitempty"`
	Awaited   int      `json:"awaited"` // proxies that it concerned
	Acked     int      `json:"acked"`
	Left      int      `json:"left"`
	Converged bool     `json:"converged"`
	FirstS    *float64 `json:"first_s"`
	MedianS   *float64 `json:"median_s"`
	LastS     *float64 `json:"converged_s"` // until the last proxy had acknowledged it
}

func (t *tracker) report(c *change) report {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.report()
}

func (c *change) report() report {
	r := report{
		Version: c.version, Service: c.service, Endpoints: c.endpoints,
		Awaited: c.awaited, Acked: len(c.taken), Left: c.left, Converged: len(c.pending) == 0,
	}
	if !c.at.IsZero() {
		r.UnixS = unixS(c.at)
	}
	if len(c.taken) > 0 {
		second := func(d time.Duration) *float64 { s := d.Seconds(); return &s }
		r.FirstS = second(c.taken[0])
		if r.Converged {
			r.MedianS = second(c.taken[len(c.taken)/2])
			r.LastS = second(slices.Max(c.taken))
		}
	}
	return r
}
