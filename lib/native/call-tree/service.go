package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"meshtrial/native/internal/serve"
)

// callTimeout is far above what a call takes, so that a callee that hangs becomes a failed request.
const callTimeout = 10 * time.Second

// service answers each request after its steps. A failed call fails the request: nothing is hidden from who measures.
type service struct {
	Name   string
	Listen string
	// Steps follow one another; the calls of one step are made at the same time.
	Steps [][]*call
	// Afterwards are calls that no answer waits for. If one fails, the service's next request fails in its place.
	Afterwards []*call

	requests   atomic.Int64
	failed     atomic.Pointer[error]
	unfinished sync.WaitGroup // calls that no answer waits for
}

// call is one connection of a service to another.
type call struct {
	URL         string
	Every       int64 // the call is made at every n-th request of the service, beginning with the first; 0 means 1
	DelayUS     int64 `json:"delay_us"` // the time for which each call is held before it is sent
	Connections int   // the most connections that are open at once; 0 means 1

	client *http.Client
}

func (s *service) check() error {
	for _, step := range s.Steps {
		if len(step) == 0 {
			return errors.New("a step is empty")
		}
	}
	for _, call := range s.calls() {
		target, err := url.Parse(call.URL)
		if err != nil || target.Scheme != "http" || target.Host == "" {
			return fmt.Errorf("url %q is no http address", call.URL)
		}
		if call.Every < 0 || call.DelayUS < 0 || call.Connections < 0 {
			return fmt.Errorf("%s: every, delay_us and connections cannot be negative", call.URL)
		}
	}
	return nil
}

func (s *service) calls() []*call {
	all := s.Afterwards
	for _, step := range s.Steps {
		all = append(all[:len(all):len(all)], step...)
	}
	return all
}

// serve answers on listener until ctx ends.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	for _, call := range s.calls() {
		call.connect()
	}
	err := serve.HTTP(ctx, listener, &http.Server{Handler: s})
	s.unfinished.Wait()
	return err
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := s.requests.Add(1) - 1
	err := s.makeSteps(r.Context(), number)
	if earlier := s.failed.Swap(nil); err == nil && earlier != nil {
		err = fmt.Errorf("after an earlier answer: %w", *earlier)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("%s: %v", s.Name, err), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Length", "0") // as of fortio's echo of a request without a body
	for _, call := range s.Afterwards {
		if call.due(number) {
			s.unfinished.Go(func() {
				if err := call.make(context.WithoutCancel(r.Context())); err != nil {
					s.failed.Store(&err)
				}
			})
		}
	}
}

func (s *service) makeSteps(ctx context.Context, number int64) error {
	for _, step := range s.Steps {
		made := make(chan error, len(step))
		for _, call := range step[1:] {
			go func() { made <- call.makeIfDue(ctx, number) }()
		}
		made <- step[0].makeIfDue(ctx, number) // the first needs no goroutine of its own
		var first error
		for range step {
			if err := <-made; first == nil {
				first = err
			}
		}
		if first != nil {
			return first
		}
	}
	return nil
}

// connect prepares connections that are kept open, at most c.Connections of them.
func (c *call) connect() {
	c.Every, c.Connections = max(c.Every, 1), max(c.Connections, 1)
	c.client = &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			MaxConnsPerHost:     c.Connections,
			MaxIdleConnsPerHost: c.Connections,
			DisableCompression:  true,
		},
	}
}

// due reports whether the call belongs to the service's request of this number, counted from 0.
func (c *call) due(number int64) bool { return number%c.Every == 0 }

func (c *call) makeIfDue(ctx context.Context, number int64) error {
	if !c.due(number) {
		return nil
	}
	return c.make(ctx)
}

func (c *call) make(ctx context.Context) error {
	time.Sleep(time.Duration(c.DelayUS) * time.Microsecond)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", c.URL, response.Status, body)
	}
	return err
}
