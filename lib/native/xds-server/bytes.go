package main

import (
	"context"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/stats"
)

// byteCounter counts the bytes sent to proxies, as gRPC messages on the wire, by resource type.
type byteCounter struct {
	mu     sync.Mutex
	pushed map[string]traffic
}

type traffic struct {
	Pushes int64 `json:"pushes"`
	Bytes  int64 `json:"bytes"`
}

// HandleRPC is called by gRPC for every event of a call.
func (b *byteCounter) HandleRPC(_ context.Context, event stats.RPCStats) {
	out, ok := event.(*stats.OutPayload)
	if !ok {
		return
	}
	if response, ok := out.Payload.(*discovery.DeltaDiscoveryResponse); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.pushed == nil {
			b.pushed = map[string]traffic{}
		}
		sum := b.pushed[response.GetTypeUrl()]
		sum.Pushes++
		sum.Bytes += int64(out.WireLength)
		b.pushed[response.GetTypeUrl()] = sum
	}
}

func (b *byteCounter) of(kind string) traffic {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pushed[kind]
}

// TagRPC, TagConn and HandleConn are the rest of gRPC's interface.
func (b *byteCounter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn does nothing.
func (b *byteCounter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (b *byteCounter) HandleConn(context.Context, stats.ConnStats) {}
