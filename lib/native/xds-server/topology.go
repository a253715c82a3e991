package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"meshtrial/native/internal/serve"
)

// Scopes: what a proxy learns.
const (
	scopeFull   = "full"   // every service and every endpoint
	scopeScoped = "scoped" // the services its role calls
)

// topology is the file that says who is in the mesh.
type topology struct {
	Scope string `json:"scope"`
	// Extra services exist in full configuration only, and nobody calls them: the rest of a company's mesh.
	ExtraServices  int `json:"extra_services"`
	ExtraEndpoints int `json:"extra_endpoints"` // endpoints of each
	// Spread is how many endpoints of a service one proxy sends to; 0: all. The others it knows as well, but as not
	// healthy. Round robin over all would end in callers x endpoints connections, each with its TLS state.
	Spread int             `json:"spread"`
	Roles  map[string]role `json:"roles"`
	Nodes  []node          `json:"nodes"`
}

// role is what the replicas of one service share: the identity that their sidecars prove, and whom they call.
type role struct {
	SPIFFE      string `json:"spiffe"`
	Certificate string `json:"certificate"` // files, PEM
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	Calls       string `json:"calls"` // the role that requests go on to; empty: the end of the chain
	// Guarded replicas ask an authorization filter before they hand a request to the application. It lets everybody in
	// until PUT /authorization says otherwise.
	Guarded bool `json:"guarded"`
}

// node is one endpoint with its sidecar. Addresses are ip:port.
type node struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	Admin string `json:"admin"` // of the sidecar's own admin interface
	// Inbound is where the sidecar takes mutual TLS from others, for the application.
	Inbound     string `json:"inbound"`
	Application string `json:"application"`
	// Outbound is where the application hands its calls to the sidecar, in plaintext.
	Outbound string `json:"outbound"`
	// NoTraffic makes the endpoint known to the callers but not used by them: enough to measure a push.
	NoTraffic bool `json:"no_traffic"`

	number int // among the nodes of its role, in the order in which they came
}

func readTopology(file string) (*topology, error) {
	if file == "" {
		return nil, serve.Usagef("-topology is missing: give the JSON file with roles and nodes")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	t := &topology{Scope: scopeFull}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a misspelt field would silently be another experiment
	if err := decoder.Decode(t); err != nil {
		return nil, fmt.Errorf("topology %s: %w", file, err)
	}
	if err := t.validate(); err != nil {
		return nil, fmt.Errorf("topology %s: %w", file, err)
	}
	return t, nil
}

func (t *topology) validate() error {
	if t.Scope != scopeFull && t.Scope != scopeScoped {
		return fmt.Errorf("scope %q is neither %q nor %q", t.Scope, scopeFull, scopeScoped)
	}
	if t.ExtraServices < 0 || t.ExtraEndpoints < 0 || t.ExtraServices > 10_000 || t.ExtraEndpoints > 250 {
		return fmt.Errorf("extra_services must be 0 to 10000, extra_endpoints 0 to 250")
	}
	if t.Spread < 0 {
		return fmt.Errorf("spread %d is negative", t.Spread)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Roles)) {
		if err := t.Roles[name].validate(name, t.Roles); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, n := range t.Nodes {
		if seen[n.ID] {
			return fmt.Errorf("node %q is there twice", n.ID)
		}
		seen[n.ID] = true
		if err := n.validate(t.Roles); err != nil {
			return err
		}
	}
	return nil
}

func (r role) validate(name string, roles map[string]role) error {
	if name == applicationCluster || name == discoveryCluster || strings.HasPrefix(name, extraPrefix) {
		return fmt.Errorf("role %q: the name is taken by the control plane", name)
	}
	if !strings.HasPrefix(r.SPIFFE, "spiffe://") {
		return fmt.Errorf("role %s: spiffe %q is not a SPIFFE name", name, r.SPIFFE)
	}
	if _, ok := roles[r.Calls]; r.Calls != "" && !ok {
		return fmt.Errorf("role %s calls %q, which is no role", name, r.Calls)
	}
	for _, file := range []string{r.Certificate, r.Key, r.Authority} {
		if _, err := os.Stat(file); err != nil { // Envoy would refuse the listener, at every node
			return fmt.Errorf("role %s: %w", name, err)
		}
	}
	return nil
}

func (n node) validate(roles map[string]role) error {
	if n.ID == "" || strings.ContainsAny(n.ID, "/\\\x00") {
		return fmt.Errorf("node id %q: give a name without slashes", n.ID)
	}
	if _, ok := roles[n.Role]; !ok {
		return fmt.Errorf("node %s: role %q is not among the roles", n.ID, n.Role)
	}
	if n.Inbound == "" && n.Outbound == "" {
		return fmt.Errorf("node %s has neither inbound nor outbound", n.ID)
	}
	if n.Inbound != "" && n.Application == "" && !n.NoTraffic {
		return fmt.Errorf("node %s has inbound but no application behind it", n.ID)
	}
	for _, address := range []string{n.Admin, n.Inbound, n.Application, n.Outbound} {
		if _, err := netip.ParseAddrPort(address); address != "" && err != nil {
			return fmt.Errorf("node %s: %w", n.ID, err)
		}
	}
	return nil
}

// callers returns the SPIFFE names that may call a role. Where nobody calls it, any member of the mesh may.
func (t *topology) callers(name string) []string {
	var callers, all []string
	for _, caller := range slices.Sorted(maps.Keys(t.Roles)) {
		all = append(all, t.Roles[caller].SPIFFE)
		if t.Roles[caller].Calls == name {
			callers = append(callers, t.Roles[caller].SPIFFE)
		}
	}
	if len(callers) == 0 {
		return all
	}
	return callers
}

// services returns the names of what a role's proxies learn.
func (t *topology) services(name string) []string {
	if t.Scope == scopeScoped {
		if calls := t.Roles[name].Calls; calls != "" {
			return []string{calls}
		}
		return nil
	}
	services := slices.Sorted(maps.Keys(t.Roles))
	for i := range t.ExtraServices {
		services = append(services, extraName(i))
	}
	return services
}
