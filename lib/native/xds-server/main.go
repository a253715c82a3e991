// Command xds-server is a control plane for the scale-out trials: it configures every sidecar over ADS (gRPC, delta
// xDS, as a current Istio does) from a topology file, and measures what that costs: bytes pushed, and the time until
// every proxy has acknowledged a change.
//
// It is built on Envoy's go-control-plane and is deliberately simple: no debouncing, no limit on concurrent streams, no
// service discovery. Configuration is either full (every proxy learns every service and endpoint, a mesh's default) or
// scoped (a proxy learns only what it calls, as with Istio's Sidecar resource).
package main

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"

	"meshtrial/native/internal/serve"
)

const name = "xds-server"

func main() { serve.Main(name, run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	file := flags.String("topology", "", "JSON `file` with roles and nodes")
	grpcAddress := flags.String("grpc", "127.0.0.1:0", "`host:port` of the discovery service")
	adminAddress := flags.String("admin", "127.0.0.1:0", "`host:port` of /stats, /endpoints, /routes, /authorization, /converged, /bootstrap and /health")
	delay := flags.Duration("push-delay", 0, "how long a change is held back before it is pushed: a known delay, to be found again")
	bootstraps := flags.String("bootstraps", "", "write every node's Envoy bootstrap into this `folder` as NODE.json before being ready")
	if err := serve.Parse(flags, args, out,
		"github.com/envoyproxy/go-control-plane", "github.com/envoyproxy/go-control-plane/envoy"); err != nil {
		return err
	}
	if *delay < 0 || *delay > time.Minute {
		return serve.Usagef("-push-delay %v is not within 0 to 1m", *delay)
	}
	topology, err := readTopology(*file)
	if err != nil {
		return err
	}
	grpcListener, err := serve.Listen(*grpcAddress)
	if err != nil {
		return err
	}
	defer grpcListener.Close()
	adminListener, err := serve.Listen(*adminAddress)
	if err != nil {
		return err
	}
	defer adminListener.Close()
	plane, err := newPlane(topology, grpcListener.Addr().String(), *delay)
	if err != nil {
		return err
	}
	if *bootstraps != "" {
		if err := plane.writeBootstraps(*bootstraps); err != nil {
			return err
		}
	}
	if err := serve.Ready(out, name, map[string]net.Listener{"grpc": grpcListener, "admin": adminListener}); err != nil {
		return err
	}
	return serve.All(ctx,
		plane.pushes.serve,
		func(ctx context.Context) error { return plane.serveGRPC(ctx, grpcListener) },
		func(ctx context.Context) error {
			return serve.HTTP(ctx, adminListener, &http.Server{Handler: plane.admin()})
		})
}

func (p *plane) serveGRPC(ctx context.Context, listener net.Listener) error {
	service := grpc.NewServer(grpc.StatsHandler(&p.bytes))
	discovery.RegisterAggregatedDiscoveryServiceServer(service, server.NewServer(ctx, p, p.tracker.callbacks()))
	context.AfterFunc(ctx, func() { serve.StopGRPC(service) })
	return service.Serve(listener)
}
