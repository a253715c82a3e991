// Command opa-extauthz answers Envoy's external authorization calls (gRPC, V3) by evaluating a Rego policy with OPA.
//
// It replaces OPA's Envoy plugin on machines that cannot run that image: the same evaluation engine and input document
// behind the same service, with counters that prove that every request was decided.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"meshtrial/native/internal/serve"
)

//go:embed policy.rego
var defaultPolicy string

const name = "opa-extauthz"

func main() { serve.Main(name, run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	grpcAddress := flags.String("grpc", "127.0.0.1:9191", "`host:port` of the ext_authz service")
	adminAddress := flags.String("admin", "127.0.0.1:8181", "`host:port` of /stats and /health")
	policyFile := flags.String("policy", "", "Rego `file` (default: the built-in policy, see -print-policy)")
	dataFile := flags.String("data", "", "JSON `file` that becomes Rego's data: {\"jwks\", \"issuer\", \"audience\"}")
	query := flags.String("query", "data.meshtrial.allow", "Rego `query` whose value decides: true allows")
	logFile := flags.String("decision-log", "", "append every decision to this `file` as JSON lines (default: no log)")
	printPolicy := flags.Bool("print-policy", false, "print the built-in policy and exit")
	if err := serve.Parse(flags, args, out, "github.com/open-policy-agent/opa"); err != nil {
		return err
	}
	if *printPolicy {
		_, err := io.WriteString(out, defaultPolicy)
		return err
	}
	decider, err := load(ctx, *policyFile, *dataFile, *query)
	if err != nil {
		return err
	}
	authz := &server{decider: decider}
	if *logFile != "" {
		if authz.log, err = openDecisionLog(*logFile); err != nil {
			return err
		}
		defer authz.log.close()
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
	if err := serve.Ready(out, name, map[string]net.Listener{"grpc": grpcListener, "admin": adminListener}); err != nil {
		return err
	}
	return serve.All(ctx,
		func(ctx context.Context) error { return authz.serveGRPC(ctx, grpcListener) },
		func(ctx context.Context) error {
			return serve.HTTP(ctx, adminListener, &http.Server{Handler: authz.admin()})
		})
}

// load reads the files and compiles the policy, so that mistakes are reported before anything listens.
func load(ctx context.Context, policyFile, dataFile, query string) (*decider, error) {
	policy := defaultPolicy
	if policyFile != "" {
		text, err := os.ReadFile(policyFile)
		if err != nil {
			return nil, fmt.Errorf("policy: %w", err)
		}
		policy = string(text)
	} else {
		policyFile = "policy.rego"
	}
	data := []byte("{}")
	if dataFile != "" {
		text, err := os.ReadFile(dataFile)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		data = text
	}
	return newDecider(ctx, policyFile, policy, data, query)
}

func (s *server) serveGRPC(ctx context.Context, listener net.Listener) error {
	service := grpc.NewServer()
	authv3.RegisterAuthorizationServer(service, s)
	healthy := health.NewServer()
	healthv1.RegisterHealthServer(service, healthy)
	context.AfterFunc(ctx, func() {
		healthy.Shutdown()
		serve.StopGRPC(service)
	})
	return service.Serve(listener)
}

func (s *server) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { serve.JSON(w, s.stats()) })
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { serve.JSON(w, map[string]bool{"ok": true}) })
	return mux
}
