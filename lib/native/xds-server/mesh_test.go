package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"meshtrial/native/internal/servetest"
)

// mesh is a topology of three roles with n replicas each, in files that exist but hold nothing.
func mesh(t *testing.T, n int, scope string, extra int) *topology {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pem")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := &topology{Scope: scope, ExtraServices: extra, ExtraEndpoints: 2, Roles: map[string]role{}}
	for i, name := range []string{"loadgen", "client", "server"} {
		calls := []string{"client", "server", ""}[i]
		made.Roles[name] = role{SPIFFE: "spiffe://mesh.test/" + name, Certificate: file, Key: file, Authority: file, Calls: calls}
		for k := range n {
			at := fmt.Sprintf("127.66.%d.%d", i, k+1)
			replica := node{ID: fmt.Sprintf("%s-%d", name, k), Role: name, Admin: at + ":15000"}
			if name != "loadgen" {
				replica.Inbound, replica.Application = at+":15006", at+":8080"
			}
			if calls != "" {
				replica.Outbound = at + ":15001"
			}
			made.Nodes = append(made.Nodes, replica)
		}
	}
	return made
}

// running is the whole program on free ports.
type running struct {
	grpc, admin string
	stop        func() // ends it as SIGTERM does, and waits
}

func start(t *testing.T, made *topology, args ...string) running {
	t.Helper()
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "topology.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var ready struct{ GRPC, Admin string }
	stop := servetest.Start(t, run, &ready, append([]string{"-topology", file}, args...)...)
	return running{ready.GRPC, "http://" + ready.Admin, stop}
}

// ask sends an admin request and decodes the answer into value; it returns the status.
func (r running) ask(t *testing.T, method, path, body string, value any) int {
	t.Helper()
	request, err := http.NewRequest(method, r.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if value != nil {
		if err := json.Unmarshal(text, value); err != nil {
			t.Fatalf("%s %s: %s", method, path, text)
		}
	}
	return response.StatusCode
}
