package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

// bootstrap is what a sidecar must know before it can ask: its name, this server's address, and its application, which
// is known at the start and, besides the listeners, the only difference between replicas.
func bootstrap(n node, server string) *bootstrapv3.Bootstrap {
	config := &bootstrapv3.Bootstrap{
		Node: &corev3.Node{Id: n.ID, Cluster: n.Role},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: &corev3.ApiConfigSource{
				ApiType:             corev3.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion: corev3.ApiVersion_V3,
				GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
					EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: discoveryCluster},
				}}},
				SetNodeOnFirstMessageOnly: true,
			},
			CdsConfig: ads(),
			LdsConfig: ads(),
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{
			staticCluster(discoveryCluster, server, true),
		}},
		// With hundreds of proxies on few cores, the watchdogs' default of 200 ms costs an idle proxy .1 % of a core.
		// Statistics are merged when they are asked for.
		Watchdogs:  &bootstrapv3.Watchdogs{MainThreadWatchdog: watchdog(), WorkerWatchdog: watchdog()},
		StatsFlush: &bootstrapv3.Bootstrap_StatsFlushOnAdmin{StatsFlushOnAdmin: true},
	}
	if n.Admin != "" {
		config.Admin = &bootstrapv3.Admin{Address: address(n.Admin)}
	}
	if n.Application != "" {
		config.StaticResources.Clusters = append(config.StaticResources.Clusters,
			staticCluster(applicationCluster, n.Application, false))
	}
	return config
}

func watchdog() *bootstrapv3.Watchdog {
	return &bootstrapv3.Watchdog{
		MissTimeout: durationpb.New(time.Minute), MegamissTimeout: durationpb.New(2 * time.Minute),
	}
}

func staticCluster(name, at string, h2 bool) *clusterv3.Cluster {
	cluster := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(5 * time.Second),
		CircuitBreakers:      thresholds(),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(at)}},
			}}}},
		},
	}
	if h2 {
		cluster.TypedExtensionProtocolOptions = http2()
	}
	return cluster
}

// writeBootstraps writes NODE.json for every node with an admin address, which is one with a sidecar.
func (p *plane) writeBootstraps(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("bootstraps: %w", err)
	}
	for _, n := range p.topology.Nodes {
		text, err := protojson.Marshal(bootstrap(n, p.address))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, n.ID+".json"), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("bootstraps: %w", err)
		}
	}
	return nil
}
