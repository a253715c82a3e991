// CoreDNS with just the plugins that the test cluster's Corefile uses: the full set pulls in every cloud's SDK.
package main

import (
	_ "github.com/coredns/caddy/onevent"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// The order in which the server chains the plugins.
	dnsserver.Directives = []string{"ready", "health", "prometheus", "errors", "kubernetes"}
}

func main() { coremain.Run() }
