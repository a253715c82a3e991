package main

import (
	"context"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// fakeProxy speaks delta ADS in Envoy's order: clusters, then their endpoints, listeners, then their routes. It
// acknowledges everything and keeps the names of the resources that it received.
type fakeProxy struct {
	id     string
	refuse string // a type to refuse instead
	// Its inbound listener takes its routes from the control plane.
	guarded bool

	mu       sync.Mutex
	received map[string]map[string]string // version by name by type
}

func (f *fakeProxy) start(t *testing.T, address string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(connection).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f.received = map[string]map[string]string{}
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: &corev3.Node{Id: f.id}, TypeUrl: resource.ClusterType})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			for _, request := range f.answer(response) {
				_ = stream.Send(request)
			}
		}
	}()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); connection.Close(); <-ended }) }
	t.Cleanup(stop)
	return stop
}

func (f *fakeProxy) answer(response *discovery.DeltaDiscoveryResponse) []*discovery.DeltaDiscoveryRequest {
	kind := response.GetTypeUrl()
	ack := &discovery.DeltaDiscoveryRequest{TypeUrl: kind, ResponseNonce: response.GetNonce()}
	if kind == f.refuse {
		ack.ErrorDetail = &statuspb.Status{Message: "not this"}
		return []*discovery.DeltaDiscoveryRequest{ack}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.received[kind] == nil
	if first {
		f.received[kind] = map[string]string{}
	}
	var names []string
	for _, r := range response.GetResources() {
		f.received[kind][r.GetName()] = r.GetVersion()
		names = append(names, r.GetName())
	}
	requests := []*discovery.DeltaDiscoveryRequest{ack}
	ask := func(kind string, names ...string) {
		requests = append(requests, &discovery.DeltaDiscoveryRequest{TypeUrl: kind, ResourceNamesSubscribe: names})
	}
	switch {
	case kind == resource.ClusterType && first && len(names) > 0:
		ask(resource.EndpointType, names...)
	case kind == resource.ClusterType && first, kind == resource.EndpointType && first:
		ask(resource.ListenerType)
	case kind == resource.ListenerType && f.received[kind]["outbound"] != "":
		ask(resource.RouteType, outboundRoutes)
	case kind == resource.ListenerType && f.guarded:
		ask(resource.RouteType, inboundRoutes)
	}
	return requests
}

func (f *fakeProxy) version(kind, name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.received[kind][name]
}

func (f *fakeProxy) count(kind string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.received[kind])
}

// connect starts a proxy for every node.
func connect(t *testing.T, r running, made *topology) []*fakeProxy {
	t.Helper()
	proxies := make([]*fakeProxy, len(made.Nodes))
	for i, n := range made.Nodes {
		proxies[i] = &fakeProxy{id: n.ID, guarded: made.Roles[n.Role].Guarded}
		proxies[i].start(t, r.grpc)
	}
	return proxies
}
