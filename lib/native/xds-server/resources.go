package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names that a proxy's configuration refers to.
const (
	applicationCluster = "application" // in the bootstrap: the process behind the sidecar
	discoveryCluster   = "xds"         // in the bootstrap: this server
	outboundRoutes     = "outbound"
	inboundRoutes      = "inbound" // of guarded roles, whose authorization is part of their routes
	authorizationName  = "envoy.filters.http.rbac"
	extraPrefix        = "extra-"
	// plenty is far above what a study opens; Envoy's default of 1024 would silently shed load.
	plenty = 100_000
)

func extraName(i int) string { return fmt.Sprintf("%s%04d", extraPrefix, i) }

// pack wraps a message that can always be marshalled.
func pack(message proto.Message) *anypb.Any {
	packed, err := anypb.New(message)
	if err != nil {
		panic(err) // only for invalid UTF-8, and these messages contain validated names only
	}
	return packed
}

// address converts ip:port, which was validated with the topology.
func address(text string) *corev3.Address {
	parsed := netip.MustParseAddrPort(text)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       parsed.Addr().String(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(parsed.Port())},
	}}}
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

// thresholds disable the circuit breakers in effect.
func thresholds() *clusterv3.CircuitBreakers {
	many := wrapperspb.UInt32(plenty)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
		{MaxConnections: many, MaxPendingRequests: many, MaxRequests: many},
	}}
}

// neverPanic keeps Envoy from using endpoints that are marked as unhealthy when most of them are: here the mark
// deliberately keeps traffic away from them.
func neverPanic() *clusterv3.Cluster_CommonLbConfig {
	return &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}}
}

// http2 are the options of a cluster that speaks HTTP/2 only.
func http2() map[string]*anypb.Any {
	return map[string]*anypb.Any{
		"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
					},
				},
			},
		}),
	}
}

// serviceCluster is one service for a role's proxies: endpoints by EDS, round robin, mutual TLS.
func serviceCluster(service, spiffe string, own role) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          service,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		LbPolicy:                      clusterv3.Cluster_ROUND_ROBIN,
		ConnectTimeout:                durationpb.New(5 * time.Second),
		CircuitBreakers:               thresholds(),
		CommonLbConfig:                neverPanic(),
		TransportSocket:               upstreamTLS(own, spiffe),
		TypedExtensionProtocolOptions: http2(),
	}
}

// clusters returns what a role's proxies get by CDS.
func (t *topology) clusters(name string) []*clusterv3.Cluster {
	own := t.Roles[name]
	var clusters []*clusterv3.Cluster
	for _, service := range t.services(name) {
		spiffe := t.Roles[service].SPIFFE
		if spiffe == "" { // an extra service has no role; give it a name in the same trust domain
			domain, _, _ := strings.Cut(strings.TrimPrefix(own.SPIFFE, "spiffe://"), "/")
			spiffe = "spiffe://" + domain + "/" + service
		}
		clusters = append(clusters, serviceCluster(service, spiffe, own))
	}
	return clusters
}

// routes returns what a role's proxies get by RDS: a service by its name, and anything else to the called role, or to
// several by weight.
func (t *topology) routes(name string, weights map[string]uint32) *routev3.RouteConfiguration {
	var hosts []*routev3.VirtualHost
	for _, service := range t.services(name) {
		hosts = append(hosts, virtualHost(service, service, service+".mesh"))
	}
	if calls := t.Roles[name].Calls; calls != "" {
		other := virtualHost("default", calls, "*")
		if len(weights) > 0 {
			other.Routes[0].GetRoute().ClusterSpecifier = weighted(weights)
		}
		hosts = append(hosts, other)
	}
	return &routev3.RouteConfiguration{Name: outboundRoutes, VirtualHosts: hosts, ValidateClusters: wrapperspb.Bool(false)}
}

func weighted(weights map[string]uint32) *routev3.RouteAction_WeightedClusters {
	var clusters []*routev3.WeightedCluster_ClusterWeight
	for _, service := range slices.Sorted(maps.Keys(weights)) {
		clusters = append(clusters, &routev3.WeightedCluster_ClusterWeight{
			Name: service, Weight: wrapperspb.UInt32(weights[service]),
		})
	}
	return &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: clusters}}
}

// inbound returns the routes of a guarded role's listeners. With an empty list of rules the filter refuses every caller,
// without a list it admits every caller.
func inbound(allowed bool) *routev3.RouteConfiguration {
	host := virtualHost("application", applicationCluster, "*")
	if !allowed {
		host.TypedPerFilterConfig = map[string]*anypb.Any{authorizationName: pack(&rbacv3.RBACPerRoute{
			Rbac: &rbacv3.RBAC{Rules: &rbacconfigv3.RBAC{Action: rbacconfigv3.RBAC_ALLOW}},
		})}
	}
	return &routev3.RouteConfiguration{Name: inboundRoutes, VirtualHosts: []*routev3.VirtualHost{host}}
}

// virtualHost routes everything to one cluster, without retries and time-outs, so that a proxy neither hides nor adds a
// failure.
func virtualHost(name, cluster string, domains ...string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: domains, Routes: []*routev3.Route{{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
			Timeout:          durationpb.New(0),
		}},
	}}}
}

// listeners returns what one node gets by LDS.
func (t *topology) listeners(n node) []*listenerv3.Listener {
	var listeners []*listenerv3.Listener
	if n.Inbound != "" {
		in := manager("inbound")
		if t.Roles[n.Role].Guarded {
			in.RouteSpecifier = byRDS(inboundRoutes)
			in.HttpFilters = append([]*hcmv3.HttpFilter{filter(authorizationName, &rbacv3.RBAC{})}, in.HttpFilters...)
		} else {
			in.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: inbound(true)}
		}
		made := listener("inbound", n.Inbound, in)
		made.FilterChains[0].TransportSocket = downstreamTLS(t.Roles[n.Role], t.callers(n.Role))
		listeners = append(listeners, made)
	}
	if n.Outbound != "" {
		outbound := manager("outbound")
		outbound.RouteSpecifier = byRDS(outboundRoutes)
		listeners = append(listeners, listener("outbound", n.Outbound, outbound))
	}
	return listeners
}

func byRDS(name string) *hcmv3.HttpConnectionManager_Rds {
	return &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: ads(), RouteConfigName: name}}
}

func filter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}

func manager(prefix string) *hcmv3.HttpConnectionManager {
	return &hcmv3.HttpConnectionManager{
		StatPrefix:        prefix,
		CodecType:         hcmv3.HttpConnectionManager_AUTO,
		GenerateRequestId: wrapperspb.Bool(false),
		HttpFilters:       []*hcmv3.HttpFilter{filter("envoy.filters.http.router", &routerv3.Router{})},
	}
}

func listener(name, at string, manager *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name:    name,
		Address: address(at),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(manager)},
		}}}},
	}
}

// assignment returns a service's endpoints for EDS; those that uses rejects are announced but get no traffic.
func assignment(service string, nodes []node, uses func(node) bool) *endpointv3.ClusterLoadAssignment {
	endpoints := make([]*endpointv3.LbEndpoint, 0, len(nodes))
	for _, n := range nodes {
		made := &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
			Endpoint: &endpointv3.Endpoint{Address: address(n.Inbound)},
		}}
		if n.NoTraffic || !uses(n) {
			made.HealthStatus = corev3.HealthStatus_UNHEALTHY
		}
		endpoints = append(endpoints, made)
	}
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: service, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: endpoints}},
	}
}

// extraNodes returns the endpoints of an extra service: documentation addresses (RFC 5737), because it is never called.
func extraNodes(service, count int) []node {
	nodes := make([]node, count)
	for i := range nodes {
		nodes[i].Inbound = fmt.Sprintf("192.0.2.%d:%d", i+1, 1024+service)
	}
	return nodes
}
