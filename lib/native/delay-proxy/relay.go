package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"meshtrial/native/internal/serve"
	"meshtrial/native/internal/wait"
)

// chunkSize is the most that one read returns; requests of the trials fit in one.
const chunkSize = 256 << 10

// dialTimeout limits how long a client waits for a target that does not answer.
const dialTimeout = 5 * time.Second

// relay forwards connections to one target.
type relay struct {
	target string
	delay  time.Duration
	dialer net.Dialer

	applied                           applied
	accepted, open, dialErrors, reset atomic.Int64
	bytesUp, bytesDown                atomic.Int64
	buffers                           sync.Pool

	mu    sync.Mutex
	conns map[*net.TCPConn]struct{}
}

// stats is the answer of /stats; up is from client to target.
type stats struct {
	Name       string  `json:"name"`
	Version    string  `json:"version"`
	Target     string  `json:"target"`
	Delay      float64 `json:"delay_s"`
	Accepted   int64   `json:"connections"`
	Open       int64   `json:"open"`
	DialErrors int64   `json:"dial_errors"`
	Resets     int64   `json:"resets"` // connections that did not end by both sides closing
	BytesUp    int64   `json:"bytes_up"`
	BytesDown  int64   `json:"bytes_down"`
	Applied    summary `json:"applied"`
}

func newRelay(target string, delay time.Duration) *relay {
	return &relay{
		target: target, delay: delay, dialer: net.Dialer{Timeout: dialTimeout},
		buffers: sync.Pool{New: func() any { return new([chunkSize]byte) }},
		conns:   map[*net.TCPConn]struct{}{},
	}
}

func (r *relay) stats() stats {
	return stats{
		Name: name, Version: serve.Version, Target: r.target, Delay: r.delay.Seconds(),
		Accepted: r.accepted.Load(), Open: r.open.Load(), DialErrors: r.dialErrors.Load(), Resets: r.reset.Load(),
		BytesUp: r.bytesUp.Load(), BytesDown: r.bytesDown.Load(), Applied: r.applied.summary(),
	}
}

// serve accepts connections until ctx ends; open ones then have some time to end before they are closed.
func (r *relay) serve(ctx context.Context, listener net.Listener) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			time.AfterFunc(serve.Grace, r.closeAll)
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			// Usually there are no file handles left. Report it and continue, for the open connections can still be served.
			fmt.Fprintf(os.Stderr, "%s: accept: %v\n", name, err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		client := connection.(*net.TCPConn)
		handlers.Go(func() { r.handle(ctx, client) })
	}
}

// handle relays one connection until both directions have ended.
func (r *relay) handle(ctx context.Context, client *net.TCPConn) {
	r.accepted.Add(1)
	r.open.Add(1)
	defer r.open.Add(-1)
	r.track(client)
	defer r.forget(client)
	connection, err := r.dialer.DialContext(ctx, "tcp", r.target)
	if err != nil {
		r.dialErrors.Add(1)
		_ = client.SetLinger(0) // a reset, which the client would also have seen without the relay
		return
	}
	target := connection.(*net.TCPConn)
	r.track(target)
	defer r.forget(target)

	up := make(chan error, 1)
	go func() { up <- ended(client, target, r.up(target, client)) }()
	down := ended(target, client, r.down(client, target))
	if err := errors.Join(<-up, down); err != nil {
		r.reset.Add(1)
	}
}

// up forwards what the client sends and delays each chunk. In both treatments one goroutine reads, waits and writes,
// because passing a chunk to another goroutine would take time that the delay would hide.
func (r *relay) up(target io.Writer, client io.Reader) error {
	buffer := r.buffers.Get().(*[chunkSize]byte)
	defer r.buffers.Put(buffer)
	for {
		n, err := client.Read(buffer[:])
		if n > 0 {
			// Count it before it is forwarded, so that a request whose answer has arrived is always counted.
			r.applied.add(r.delay, wait.For(time.Now(), r.delay))
			r.bytesUp.Add(int64(n))
			if _, err := target.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return notEOF(err)
		}
	}
}

// down forwards the answers without a delay.
func (r *relay) down(client io.Writer, target io.Reader) error {
	buffer := r.buffers.Get().(*[chunkSize]byte)
	defer r.buffers.Put(buffer)
	for {
		n, err := target.Read(buffer[:])
		if n > 0 {
			r.bytesDown.Add(int64(n))
			if _, err := client.Write(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return notEOF(err)
		}
	}
}

func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// ended forwards the end of one direction. A close becomes a half-close, so that the other direction can continue;
// anything else becomes a reset of both sides.
func ended(from, to *net.TCPConn, err error) error {
	if err == nil && to.CloseWrite() == nil {
		return nil
	}
	for _, connection := range []*net.TCPConn{from, to} {
		_ = connection.SetLinger(0)
		connection.Close()
	}
	return err
}

func (r *relay) track(connection *net.TCPConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[connection] = struct{}{}
}

func (r *relay) forget(connection *net.TCPConn) {
	connection.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, connection)
}

func (r *relay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for connection := range r.conns {
		connection.Close()
	}
}
