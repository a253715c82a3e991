package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

func guarded(r role) role {
	r.Guarded = true
	return r
}

// two is a mesh of one client and two services that it may call, the first of which asks for authorization.
func two(t *testing.T) *topology {
	t.Helper()
	made := mesh(t, 1, scopeFull, 0)
	made.Roles["server"] = guarded(made.Roles["server"])
	return made
}

type answer struct {
	UnixS float64 `json:"taken_unix_s"`
	Error string  `json:"error"`
}

// changed waits until a proxy has another version of a resource than this one, and returns when it saw it.
func changed(t *testing.T, proxy *fakeProxy, kind, name, before string) time.Time {
	t.Helper()
	for range 2000 {
		if proxy.version(kind, name) != before {
			return time.Now()
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s: no other version of %s", proxy.id, name)
	return time.Time{}
}

func TestChangesReachThoseWhomTheyConcernAndNobodyElse(t *testing.T) {
	made := two(t)
	r := start(t, made)
	proxies := connect(t, r, made)
	r.ask(t, "GET", "/converged?version=1&wait=20s", "", nil)
	client, server := proxies[1], proxies[2]
	for _, change := range []struct {
		proxy                *fakeProxy
		kind, name           string
		path, body           string
		other                *fakeProxy
		otherKind, otherName string
	}{
		{client, resource.RouteType, outboundRoutes, "/routes?role=client", `{"server": 1, "loadgen": 99}`, server, resource.RouteType, inboundRoutes},
		{server, resource.RouteType, inboundRoutes, "/authorization?role=server&allowed=false", "", client, resource.RouteType, outboundRoutes},
		{
			client, resource.EndpointType, "server", "/endpoints?service=server",
			`[{"id":"moved","role":"server","inbound":"127.66.9.9:1","application":"127.66.9.9:2"}]`, client, resource.EndpointType, "client",
		},
	} {
		before, others := change.proxy.version(change.kind, change.name), change.other.version(change.otherKind, change.otherName)
		if before == "" || others == "" {
			t.Fatalf("%+v: not configured", change)
		}
		var got answer
		asked := time.Now()
		if status := r.ask(t, "PUT", change.path, change.body, &got); status != http.StatusOK {
			t.Fatalf("%s: %d %+v", change.path, status, got)
		}
		seen := changed(t, change.proxy, change.kind, change.name, before)
		if got.UnixS < unixS(asked) || got.UnixS > unixS(seen) {
			t.Errorf("%s: taken at %f, asked at %f, seen at %f", change.path, got.UnixS, unixS(asked), unixS(seen))
		}
		if now := change.other.version(change.otherKind, change.otherName); now != others {
			t.Errorf("%s: %s changed too", change.path, change.otherName)
		}
	}
}

func TestAKnownDelayHoldsAChangeBack(t *testing.T) {
	const delay = 150 * time.Millisecond
	made := two(t)
	r := start(t, made, "-push-delay", delay.String())
	proxies := connect(t, r, made)
	r.ask(t, "GET", "/converged?version=1&wait=20s", "", nil)
	for _, change := range []struct{ kind, name, path, body string }{
		{resource.RouteType, outboundRoutes, "/routes?role=client", `{"server": 1}`},
		{resource.EndpointType, "client", "/endpoints?service=client", `[{"id":"a","role":"client","inbound":"127.66.9.9:1","no_traffic":true}]`},
	} {
		before := proxies[1].version(change.kind, change.name)
		var got answer
		r.ask(t, "PUT", change.path, change.body, &got)
		seen := changed(t, proxies[1], change.kind, change.name, before)
		if held := unixS(seen) - got.UnixS; held < delay.Seconds() {
			t.Errorf("%s: pushed after %f s", change.path, held)
		}
	}
}

func TestChangesThatMakeNoSenseAreRefused(t *testing.T) {
	made := two(t)
	r := start(t, made)
	for path, body := range map[string]string{
		"/routes?role=client":                     `{"nowhere": 1}`,
		"/routes?role=server":                     `{"client": 1}`, // it calls nobody
		"/routes?role=loadgen":                    `{"client": 0}`,
		"/authorization?role=client&allowed=true": "",
		"/authorization?role=server&allowed=":     "",
		"/endpoints?service=server":               `[]`,
		"/endpoints?service=client":               `[{"id":"a","role":"server","inbound":"127.66.9.9:1","no_traffic":true}]`,
	} {
		var got answer
		if status := r.ask(t, "PUT", path, body, &got); status != http.StatusBadRequest || got.Error == "" {
			t.Errorf("%s %s: %d %+v", path, body, status, got)
		}
	}
}
