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

// topology is the file that describes the mesh.
type topology struct {
	Scope string `json:"scope"`
	// Extra services exist in full configuration only and are never called: the rest of a company's mesh.
	ExtraServices  int `json:"extra_services"`
	ExtraEndpoints int `json:"extra_endpoints"` // endpoints of each
	// Spread is how many endpoints of a service one proxy sends to; 0 means all. It also knows the others, marked as
	// unhealthy. Round robin over all would open callers x endpoints connections, each with its TLS state.
	Spread int             `json:"spread"`
	Roles  map[string]role `json:"roles"`
	Nodes  []node          `json:"nodes"`
}

// role has what the replicas of one service share: their sidecars' identity and the role that they call.
type role struct {
	SPIFFE      string `json:"spiffe"`
	Certificate string `json:"certificate"` // files, PEM
	Key         string `json:"key"`
	Authority   string `json:"authority"`
	Calls       string `json:"calls"` // the called role; empty at the end of the chain
	// Guarded replicas pass requests through an authorization filter, which admits every caller until PUT /authorization
	// changes that.
	Guarded bool `json:"guarded"`
}

// node is one endpoint with its sidecar. Addresses are ip:port.
type node struct {
	ID    string `json:"id"`
	Role  string `json:"role"`
	Admin string `json:"admin"` // of the sidecar's own admin interface
	// Inbound is where the sidecar accepts mutual TLS from others, for the application.
	Inbound     string `json:"inbound"`
	Application string `json:"application"`
	// Outbound is where the sidecar accepts the application's calls, in plaintext.
	Outbound string `json:"outbound"`
	// NoTraffic announces the endpoint to callers, which do not use it: enough to measure a push.
	NoTraffic bool `json:"no_traffic"`

	number int // among the nodes of its role, in order of registration
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
	decoder.DisallowUnknownFields() // a misspelt field would silently change the experiment
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
			return fmt.Errorf("node %q is listed twice", n.ID)
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
		return fmt.Errorf("role %s calls %q, which is not among the roles", name, r.Calls)
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

// callers returns the SPIFFE names that may call a role: those of its callers, or of every member if it has none.
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

// services returns the names of the services that a role's proxies learn.
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
