package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

func TestResourcesAreValid(t *testing.T) {
	made := mesh(t, 2, scopeFull, 3)
	check := func(message proto.Message) {
		t.Helper()
		if err := message.(interface{ ValidateAll() error }).ValidateAll(); err != nil {
			t.Error(err)
		}
	}
	for name := range made.Roles {
		for _, c := range made.clusters(name) {
			check(c)
		}
		check(made.routes(name, nil))
		check(made.routes(name, map[string]uint32{"client": 0, "server": 100}))
	}
	check(inbound(true))
	check(inbound(false))
	made.Roles["server"] = guarded(made.Roles["server"])
	for _, n := range made.Nodes {
		for _, l := range made.listeners(n) {
			check(l)
		}
		check(bootstrap(n, "127.0.0.1:1"))
	}
	check(assignment("extra-0000", extraNodes(0, 3), func(node) bool { return true }))
}

func TestOnlyTheCallersMayCall(t *testing.T) {
	made := mesh(t, 1, scopeFull, 0)
	for name, want := range map[string][]string{
		"client": {"spiffe://mesh.test/loadgen"},
		"server": {"spiffe://mesh.test/client"},
		// nobody calls it: any member may
		"loadgen": {"spiffe://mesh.test/client", "spiffe://mesh.test/loadgen", "spiffe://mesh.test/server"},
	} {
		if got := made.callers(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestTopologyMistakesAreNamed(t *testing.T) {
	for want, spoil := range map[string]func(*topology){
		`scope "some"`:               func(t *topology) { t.Scope = "some" },
		"spread -1":                  func(t *topology) { t.Spread = -1 },
		"extra_services":             func(t *topology) { t.ExtraServices = -1 },
		`is listed twice`:            func(t *topology) { t.Nodes[1].ID = t.Nodes[0].ID },
		`"x" is not among the roles`: func(t *topology) { t.Nodes[0].Role = "x" },
		"neither inbound":            func(t *topology) { t.Nodes[0].Outbound = "" },
		"no application":             func(t *topology) { t.Nodes[1].Application = "" },
		"ParseAddr":                  func(t *topology) { t.Nodes[0].Admin = "localhost:1" },
		"without slashes":            func(t *topology) { t.Nodes[0].ID = "../x" },
	} {
		made := mesh(t, 1, scopeFull, 0)
		spoil(made)
		if err := made.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, spoil := range map[string]func(*role){
		"is not a SPIFFE name": func(r *role) { r.SPIFFE = "client" },
		`calls "x"`:            func(r *role) { r.Calls = "x" },
		"no such file":         func(r *role) { r.Key = "/no/such/file" },
	} {
		made := mesh(t, 1, scopeFull, 0)
		spoiled := made.Roles["client"]
		spoil(&spoiled)
		made.Roles["client"] = spoiled
		if err := made.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestStartMistakesAreNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.json")
	if err := os.WriteFile(file, []byte(`{"roles": {}, "nods": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"-topology is missing": {},
		"no such file":         {"-topology", "/no/such/file"},
		`unknown field "nods"`: {"-topology", file},
		"unexpected argument":  {"x"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func TestBootstrapsAreWritten(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "bootstraps")
	r := start(t, mesh(t, 1, scopeFull, 0), "-bootstraps", folder)
	text, err := os.ReadFile(filepath.Join(folder, "client-0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bootstrap struct {
		Node            struct{ ID, Cluster string }
		StaticResources struct{ Clusters []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &bootstrap); err != nil {
		t.Fatal(err)
	}
	port := r.grpc[strings.LastIndexByte(r.grpc, ':')+1:]
	if bootstrap.Node.ID != "client-0" || bootstrap.Node.Cluster != "client" || len(bootstrap.StaticResources.Clusters) != 2 ||
		!strings.Contains(string(text), port) {
		t.Errorf("%s", text)
	}
}
