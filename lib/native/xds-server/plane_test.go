package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

func TestFullAndScopedConfiguration(t *testing.T) {
	for _, test := range []struct {
		scope    string
		extra    int
		role     int // index of a node of that role
		clusters int
	}{
		{scopeFull, 5, 0, 3 + 5},
		{scopeFull, 5, 4, 3 + 5}, // the last role calls nobody, and learns everything all the same
		{scopeScoped, 5, 0, 1},
		{scopeScoped, 5, 2, 1},
		{scopeScoped, 5, 4, 0},
	} {
		made := mesh(t, 2, test.scope, test.extra)
		r := start(t, made)
		proxies := connect(t, r, made)
		var initial report
		r.ask(t, "GET", "/converged?version=1&wait=20s", "", &initial)
		if !initial.Converged || initial.Awaited != 6 || initial.Acked != 6 {
			t.Fatalf("%+v: %+v", test, initial)
		}
		proxy := proxies[test.role]
		if n := proxy.count(resource.ClusterType); n != test.clusters {
			t.Errorf("%+v: %d clusters", test, n)
		}
		if n := proxy.count(resource.EndpointType); n != test.clusters {
			t.Errorf("%+v: %d services' endpoints", test, n)
		}
	}
}

func TestAddedEndpointReachesThoseWhomItConcerns(t *testing.T) {
	for scope, awaited := range map[string]int{scopeFull: 9, scopeScoped: 3} {
		made := mesh(t, 3, scope, 0)
		r := start(t, made)
		connect(t, r, made)
		r.ask(t, "GET", "/converged?version=1&wait=20s", "", nil)
		var added, removed, converged report
		status := r.ask(t, "POST", "/endpoints", `{"id":"new","role":"client","inbound":"127.66.9.9:1","no_traffic":true}`, &added)
		if status != http.StatusOK || added.Version != 2 || added.Awaited != awaited || added.Endpoints != 4 || added.Service != "client" {
			t.Errorf("%s: %d %+v", scope, status, added)
		}
		r.ask(t, "GET", "/converged?version=2&wait=20s", "", &converged)
		if !converged.Converged || converged.Acked != awaited || converged.LastS == nil || *converged.LastS < *converged.FirstS {
			t.Errorf("%s: %+v", scope, converged)
		}
		r.ask(t, "DELETE", "/endpoints?id=new", "", &removed)
		r.ask(t, "GET", "/converged?version=3&wait=20s", "", &converged)
		if removed.Endpoints != 3 || !converged.Converged {
			t.Errorf("%s: %+v %+v", scope, removed, converged)
		}
		var now overview
		r.ask(t, "GET", "/stats", "", &now)
		if now.Connected != 9 || now.Configured != 9 || now.Nodes != 9 || now.Nacks != 0 || len(now.Versions) != 3 {
			t.Errorf("%s: %+v", scope, now)
		}
		if now.Acks != now.Pushes || now.Bytes == 0 || now.ByType["eds"].Pushes != int64(len(eds(made))+2*awaited) {
			t.Errorf("%s: %d acks, %d pushes, %+v", scope, now.Acks, now.Pushes, now.ByType)
		}
	}
}

// eds lists the nodes that learn any endpoints at the start.
func eds(made *topology) (nodes []string) {
	for _, n := range made.Nodes {
		if len(made.services(n.Role)) > 0 {
			nodes = append(nodes, n.ID)
		}
	}
	return nodes
}

func TestAProxyThatLeavesIsNotWaitedFor(t *testing.T) {
	made := mesh(t, 1, scopeFull, 0)
	tr := newTracker()
	for id, n := range made.Nodes {
		tr.open(int64(id))
		tr.proxies[int64(id)].node = n.ID
		tr.proxies[int64(id)].subscribed["client"] = true
	}
	begun := tr.begin("client", 1, 2)
	tr.close(0)
	if got := tr.report(begun); got.Awaited != 3 || got.Left != 1 || got.Converged {
		t.Errorf("%+v", got)
	}
	tr.close(1)
	tr.close(2)
	if got := tr.report(begun); got.Left != 3 || !got.Converged || got.LastS != nil {
		t.Errorf("%+v", got)
	}
}

func TestARefusalIsCountedAndDoesNotConverge(t *testing.T) {
	made := mesh(t, 1, scopeFull, 0)
	r := start(t, made)
	(&fakeProxy{id: "client-0", refuse: resource.ListenerType}).start(t, r.grpc)
	var now overview
	for range 200 {
		if r.ask(t, "GET", "/stats", "", &now); now.Nacks > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if now.Nacks != 1 || now.Configured != 0 || now.LastNack == nil || now.LastNack.Node != "client-0" || now.LastNack.Message != "not this" {
		t.Errorf("%+v %+v", now, now.LastNack)
	}
	var initial report
	r.ask(t, "GET", "/converged?version=1&wait=10ms", "", &initial)
	if initial.Converged {
		t.Errorf("%+v", initial)
	}
}

func TestAnUnknownProxyIsTurnedAway(t *testing.T) {
	made := mesh(t, 1, scopeFull, 0)
	r := start(t, made)
	(&fakeProxy{id: "stranger"}).start(t, r.grpc)
	var now overview
	for range 200 {
		if r.ask(t, "GET", "/stats", "", &now); now.Refused > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%+v", now)
}

func TestAnAddedSidecarIsConfigured(t *testing.T) {
	made := mesh(t, 1, scopeFull, 0)
	r := start(t, made)
	connect(t, r, made)
	r.ask(t, "GET", "/converged?version=1&wait=20s", "", nil)
	r.ask(t, "POST", "/endpoints", `{"id":"late","role":"client","inbound":"127.66.9.9:1","application":"127.66.9.9:2","outbound":"127.66.9.9:3"}`, nil)
	var bootstrap map[string]any
	if status := r.ask(t, "GET", "/bootstrap?node=late", "", &bootstrap); status != http.StatusOK || bootstrap["dynamicResources"] == nil {
		t.Errorf("bootstrap: %d %v", status, bootstrap)
	}
	late := &fakeProxy{id: "late"}
	late.start(t, r.grpc)
	var now overview
	for range 200 {
		if r.ask(t, "GET", "/stats", "", &now); now.Configured == 4 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if now.Configured != 4 || now.Nodes != 4 || late.count(resource.ListenerType) != 2 {
		t.Errorf("%+v, %d listeners", now, late.count(resource.ListenerType))
	}
}

func TestBadAdminRequests(t *testing.T) {
	r := start(t, mesh(t, 1, scopeFull, 0))
	for _, test := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"GET", "/converged?version=2", "", "does not exist", 404},
		{"GET", "/converged?version=x", "", "does not exist", 404},
		{"GET", "/converged?version=1&wait=1h", "", "at most", 400},
		{"GET", "/bootstrap?node=x", "", "not in the topology", 404},
		{"DELETE", "/endpoints?id=x", "", "no endpoint", 400},
		{"POST", "/endpoints", `{"id":"x","role":"nobody","inbound":"127.0.0.1:1"}`, "not among the roles", 400},
		{"POST", "/endpoints", `{"id":"client-0","role":"client","inbound":"127.0.0.1:1","no_traffic":true}`, "exists already", 400},
		{"POST", "/endpoints", `{"id":"x","role":"client","outbound":"127.0.0.1:1"}`, "no inbound", 400},
		{"POST", "/endpoints", `{"di":"x"}`, "unknown field", 400},
	} {
		var answer struct{ Error string }
		if status := r.ask(t, test.method, test.path, test.body, &answer); status != test.status || !strings.Contains(answer.Error, test.want) {
			t.Errorf("%s %s %s: %d %q", test.method, test.path, test.body, status, answer.Error)
		}
	}
}

func TestSixHundredStreamsAtOnce(t *testing.T) {
	made := mesh(t, 200, scopeFull, 50)
	r := start(t, made)
	begin := time.Now()
	connect(t, r, made)
	var initial, added report
	r.ask(t, "GET", "/converged?version=1&wait=60s", "", &initial)
	if !initial.Converged || initial.Acked != 600 {
		t.Fatalf("%+v", initial)
	}
	t.Logf("600 configured %v after the first was started", time.Since(begin).Round(time.Millisecond))
	for k := range 3 {
		r.ask(t, "POST", "/endpoints", fmt.Sprintf(`{"id":"new-%d","role":"server","inbound":"127.66.9.%d:1","no_traffic":true}`, k, k+1), &added)
		r.ask(t, "GET", fmt.Sprintf("/converged?version=%d&wait=60s", added.Version), "", &added)
		if !added.Converged || added.Acked != 600 {
			t.Fatalf("%+v", added)
		}
		t.Logf("one more endpoint known to all after %.3f s", *added.LastS)
	}
	begin = time.Now()
	r.stop() // with every stream still open
	t.Logf("ended in %v", time.Since(begin).Round(time.Millisecond))
}
