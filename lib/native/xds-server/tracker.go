package main

import (
	"context"
	"strconv"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
)

// needs is the set of resource types that a configured node has acknowledged.
type needs uint8

const (
	needClusters needs = 1 << iota
	needEndpoints
	needListeners
	needRoutes
)

var needOf = map[string]needs{
	resource.ClusterType: needClusters, resource.EndpointType: needEndpoints,
	resource.ListenerType: needListeners, resource.RouteType: needRoutes,
}

// tracker records what every proxy was sent and has acknowledged, from the server's callbacks.
type tracker struct {
	mu       sync.Mutex
	expected map[string]needs // by node
	proxies  map[int64]*proxy // by stream
	changes  []*change        // version v is changes[v-1]; the first one is the initial configuration

	opened, closed, refused, acks, nacks int64
	lastNack                             *nack
}

// proxy is one stream.
type proxy struct {
	node       string
	sent       map[string]response // by nonce, until answered
	acked      needs
	subscribed map[string]bool // services whose endpoints it follows, without the extra ones
}

type response struct {
	kind    string
	version uint64
}

// nack is a refused configuration.
type nack struct {
	Node    string `json:"node"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

func newTracker() *tracker {
	return &tracker{
		expected: map[string]needs{}, proxies: map[int64]*proxy{}, changes: []*change{newChange("", 0, 0)},
	}
}

func (t *tracker) initial() *change { return t.changes[0] }

// expect adds a node that should connect. After the start, the caller who added it waits for it.
func (t *tracker) expect(id string, needs needs) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected[id] = needs
	if t.initial().at.IsZero() {
		t.initial().pending[id] = true
		t.initial().awaited++
	}
}

func (t *tracker) forget(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.expected, id)
}

func (t *tracker) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused++
}

// begin records a change of a service's endpoints, which every proxy that follows it now must acknowledge.
func (t *tracker) begin(service string, update uint64, endpoints int) *change {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := newChange(service, update, endpoints)
	begun.version = len(t.changes) + 1
	for _, p := range t.proxies {
		if p.subscribed[service] {
			begun.pending[p.node] = true
		}
	}
	begun.awaited = len(begun.pending)
	begun.start()
	t.changes = append(t.changes, begun)
	return begun
}

// change returns version v, or nil.
func (t *tracker) change(v int) *change {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v < 1 || v > len(t.changes) {
		return nil
	}
	return t.changes[v-1]
}

func (t *tracker) callbacks() server.Callbacks {
	return server.CallbackFuncs{
		DeltaStreamOpenFunc:   func(_ context.Context, id int64, _ string) error { t.open(id); return nil },
		DeltaStreamClosedFunc: func(id int64, _ *corev3.Node) { t.close(id) },
		StreamDeltaRequestFunc: func(id int64, request *discovery.DeltaDiscoveryRequest) error {
			t.request(id, request)
			return nil
		},
		StreamDeltaResponseFunc: func(id int64, _ *discovery.DeltaDiscoveryRequest, sent *discovery.DeltaDiscoveryResponse) {
			t.response(id, sent)
		},
	}
}

func (t *tracker) open(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
	t.proxies[id] = &proxy{sent: map[string]response{}, subscribed: map[string]bool{}}
	if t.initial().at.IsZero() {
		t.initial().start()
	}
}

// close removes a disconnected proxy from what later changes wait for; the initial configuration still waits for it.
func (t *tracker) close(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed++
	gone := t.proxies[id]
	delete(t.proxies, id)
	for _, c := range t.changes[1:] {
		c.leave(gone.node)
	}
}

func (t *tracker) response(id int64, sent *discovery.DeltaDiscoveryResponse) {
	version, _ := strconv.ParseUint(sent.GetSystemVersionInfo(), 10, 64) // the caches' versions are counters
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proxies[id].sent[sent.GetNonce()] = response{sent.GetTypeUrl(), version}
}

func (t *tracker) request(id int64, request *discovery.DeltaDiscoveryRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.proxies[id]
	if request.GetNode() != nil {
		p.node = request.GetNode().GetId()
	}
	if request.GetTypeUrl() == resource.EndpointType {
		for _, service := range request.GetResourceNamesSubscribe() {
			if !strings.HasPrefix(service, extraPrefix) { // those never change
				p.subscribed[service] = true
			}
		}
		for _, service := range request.GetResourceNamesUnsubscribe() {
			delete(p.subscribed, service)
		}
	}
	answered, ok := p.sent[request.GetResponseNonce()]
	if !ok {
		return // a new subscription, not an answer
	}
	delete(p.sent, request.GetResponseNonce())
	if request.GetErrorDetail() != nil {
		t.nacks++
		t.lastNack = &nack{p.node, request.GetTypeUrl(), request.GetErrorDetail().GetMessage()}
		return
	}
	t.acks++
	p.acked |= needOf[answered.kind]
	if t.configured(p) {
		t.initial().ack(p.node)
	}
	if answered.kind == resource.EndpointType {
		for _, c := range t.changes[1:] {
			if c.update <= answered.version {
				c.ack(p.node)
			}
		}
	}
}

// configured reports whether a proxy has acknowledged a first configuration of all that it needs.
func (t *tracker) configured(p *proxy) bool {
	needs, ok := t.expected[p.node]
	return ok && p.acked&needs == needs
}
