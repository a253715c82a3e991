package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/log"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// plane is the configuration of all nodes. Equal parts are stored once: clusters and routes by role, endpoints for all
// proxies or for each shard of callers, listeners by node. (A proxy asks for the endpoints of its own clusters.) So 600
// proxies need little more memory than their streams, and a change of one service's endpoints is one update.
type plane struct {
	topology *topology
	address  string // of the discovery service
	tracker  *tracker
	bytes    byteCounter

	clusters map[string]cache.Cache        // by role
	routes   map[string]*cache.LinearCache // by role
	shards   []shard                       // see shard.go
	pushes   *pushes

	mu         sync.RWMutex // guards what follows
	nodes      map[string]node
	registered map[string]int         // nodes that ever existed, by role
	members    map[string][]node      // endpoints by role
	listeners  map[string]cache.Cache // by node
	// updates counts updates of the endpoint caches, in step with the version in their responses.
	updates uint64
}

func newPlane(t *topology, address string, delay time.Duration) (*plane, error) {
	p := &plane{
		topology: t, address: address, tracker: newTracker(), pushes: newPushes(delay),
		clusters: map[string]cache.Cache{}, routes: map[string]*cache.LinearCache{}, listeners: map[string]cache.Cache{},
		nodes: map[string]node{}, registered: map[string]int{}, members: map[string][]node{},
	}
	for name := range t.Roles {
		p.clusters[name] = fixed(resource.ClusterType, named(t.clusters(name), (*clusterv3.Cluster).GetName))
		p.routes[name] = fixed(resource.RouteType, map[string]types.Resource{
			outboundRoutes: t.routes(name, nil), inboundRoutes: inbound(true),
		})
	}
	for _, n := range t.Nodes {
		p.register(n)
	}
	p.shards = newShards(t, p.members)
	return p, nil
}

// register adds a node: its configuration, and that it is expected to connect.
func (p *plane) register(n node) {
	n.number = p.registered[n.Role]
	p.registered[n.Role]++
	p.nodes[n.ID] = n
	p.listeners[n.ID] = fixed(resource.ListenerType, named(p.topology.listeners(n), (*listenerv3.Listener).GetName))
	if n.Inbound != "" {
		p.members[n.Role] = append(p.members[n.Role], n)
	}
	if n.Application != "" || n.Outbound != "" { // otherwise it is an endpoint without a sidecar
		needs := needClusters | needListeners
		if n.Outbound != "" || (n.Inbound != "" && p.topology.Roles[n.Role].Guarded) {
			needs |= needRoutes
		}
		if len(p.topology.services(n.Role)) > 0 {
			needs |= needEndpoints
		}
		p.tracker.expect(n.ID, needs)
	}
}

func fixed(kind string, resources map[string]types.Resource) *cache.LinearCache {
	return cache.NewLinearCache(kind, cache.WithInitialResources(resources), cache.WithLogger(log.NewDefaultLogger()))
}

func named[T types.Resource](resources []T, name func(T) string) map[string]types.Resource {
	named := make(map[string]types.Resource, len(resources))
	for _, r := range resources {
		named[name(r)] = r
	}
	return named
}

// add announces an endpoint to every proxy that knows its service, and returns the version of that change.
func (p *plane) add(n node) (*change, error) {
	if err := n.validate(p.topology.Roles); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.nodes[n.ID]; ok {
		return nil, fmt.Errorf("node %q exists already; give another id", n.ID)
	}
	if n.Inbound == "" {
		return nil, fmt.Errorf("node %s has no inbound address; give one", n.ID)
	}
	p.register(n)
	return p.update(n.Role)
}

// remove withdraws an endpoint. A connected sidecar of that name keeps its listeners.
func (p *plane) remove(id string) (*change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.nodes[id]
	if !ok || n.Inbound == "" {
		return nil, fmt.Errorf("there is no endpoint %q", id)
	}
	delete(p.nodes, id)
	delete(p.listeners, id)
	p.tracker.forget(id)
	p.members[n.Role] = slices.DeleteFunc(p.members[n.Role], func(m node) bool { return m.ID == id })
	return p.update(n.Role)
}

// update pushes a service's endpoints. The change is recorded before the first push, so that no answer is missed.
func (p *plane) update(service string) (*change, error) {
	p.updates++
	begun := p.tracker.begin(service, p.updates, len(p.members[service]))
	for _, s := range p.shards {
		endpoints := assignment(service, p.members[service], s.uses)
		if err := p.pushes.make(begun.at, func() error { return s.endpoints.UpdateResource(service, endpoints) }); err != nil {
			return nil, err
		}
	}
	return begun, nil
}

// replace replaces a service's endpoints in one push. They need not be nodes: any address works whose server has the
// service's identity.
func (p *plane) replace(service string, nodes []node) (*change, error) {
	for _, n := range nodes {
		if n.Role != service || n.Inbound == "" {
			return nil, fmt.Errorf("node %s is no endpoint of %q: give it that role and an inbound address", n.ID, service)
		}
		if err := n.validate(p.topology.Roles); err != nil {
			return nil, err
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("service %q: give at least one endpoint", service)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[service] = nodes
	return p.update(service)
}

// route routes the calls of a role's proxies to several services by weight.
func (p *plane) route(role string, weights map[string]uint32) (time.Time, error) {
	var sum uint32
	for service, weight := range weights {
		if !slices.Contains(p.topology.services(role), service) {
			return time.Time{}, fmt.Errorf("the proxies of role %q do not know a service %q", role, service)
		}
		sum += weight
	}
	if p.topology.Roles[role].Calls == "" || sum == 0 {
		return time.Time{}, fmt.Errorf("role %q: give one that calls another, and weights above 0", role)
	}
	return p.pushRoutes(role, outboundRoutes, p.topology.routes(role, weights))
}

// authorize sets whether a guarded role may be called.
func (p *plane) authorize(role string, allowed bool) (time.Time, error) {
	if !p.topology.Roles[role].Guarded {
		return time.Time{}, fmt.Errorf("role %q is not guarded, so it asks for no authorization; set guarded in the topology", role)
	}
	return p.pushRoutes(role, inboundRoutes, inbound(allowed))
}

// pushRoutes pushes routes to a role's proxies, and returns when it was asked to.
func (p *plane) pushRoutes(role, name string, routes *routev3.RouteConfiguration) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := time.Now()
	return at, p.pushes.make(at, func() error { return p.routes[role].UpdateResource(name, routes) })
}

// CreateDeltaWatch returns the part of the configuration for which a proxy asks.
func (p *plane) CreateDeltaWatch(request *cache.DeltaRequest, sub cache.Subscription, value chan cache.DeltaResponse) (func(), error) {
	p.mu.RLock()
	n, ok := p.nodes[request.GetNode().GetId()]
	listeners := p.listeners[n.ID]
	p.mu.RUnlock()
	if !ok {
		p.tracker.refuse()
		return nil, fmt.Errorf("node %q is not in the topology", request.GetNode().GetId())
	}
	var part cache.Cache
	switch request.GetTypeUrl() {
	case resource.ClusterType:
		part = p.clusters[n.Role]
	case resource.EndpointType:
		part = p.shards[n.number%len(p.shards)].endpoints
	case resource.ListenerType:
		part = listeners
	case resource.RouteType:
		part = p.routes[n.Role]
	default:
		return nil, fmt.Errorf("resources of type %q are not served", request.GetTypeUrl())
	}
	return part.CreateDeltaWatch(request, sub, value)
}

var errDeltaOnly = errors.New("only delta ADS is served: use a bootstrap from /bootstrap")

// CreateWatch refuses the state-of-the-world variant of the protocol.
func (p *plane) CreateWatch(*cache.Request, cache.Subscription, chan cache.Response) (func(), error) {
	return nil, errDeltaOnly
}

// Fetch refuses the REST variant of the protocol.
func (p *plane) Fetch(context.Context, *cache.Request) (cache.Response, error) {
	return nil, errDeltaOnly
}
