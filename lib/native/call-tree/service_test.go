package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"meshtrial/native/internal/servetest"
)

// callee answers after a time and counts its requests, those at the same moment too.
type callee struct {
	*httptest.Server
	count, active, most atomic.Int64
}

func newCallee(t *testing.T, took time.Duration, status int) *callee {
	c := new(callee)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c.count.Add(1)
		now := c.active.Add(1)
		for was := c.most.Load(); now > was && !c.most.CompareAndSwap(was, now); was = c.most.Load() {
		}
		time.Sleep(took)
		c.active.Add(-1)
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)
	return c
}

// start runs the services and returns the address of the one named root.
func start(t *testing.T, services ...*service) (root string, stop func()) {
	t.Helper()
	text, err := json.Marshal(services)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "services.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var ready struct{ Root string }
	stop = servetest.Start(t, run, &ready, "-services", path)
	return "http://" + ready.Root, stop
}

func ask(t *testing.T, url string) (status int, body string, took time.Duration) {
	t.Helper()
	begin := time.Now()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text), time.Since(begin)
}

func TestStepsFollowOneAnotherAndTheirCallsDoNot(t *testing.T) {
	const each = 40 * time.Millisecond
	both, last := newCallee(t, each, 200), newCallee(t, each, 200)
	root, stop := start(t, &service{Name: "root", Listen: "127.0.0.1:0", Steps: [][]*call{
		{{URL: both.URL, Connections: 2}, {URL: both.URL}}, {{URL: last.URL}},
	}})
	status, _, took := ask(t, root)
	if status != http.StatusOK || took < 2*each {
		t.Errorf("HTTP %d after %v, want two steps of %v", status, took, each)
	}
	if both.count.Load() != 2 || both.most.Load() != 2 || last.count.Load() != 1 {
		t.Errorf("%d calls of the first step, %d at once, then %d", both.count.Load(), both.most.Load(), last.count.Load())
	}
	stop()
}

func TestEveryFourthRequestIsFollowedByACall(t *testing.T) {
	slow := newCallee(t, 200*time.Millisecond, 200)
	root, stop := start(t, &service{Name: "root", Listen: "127.0.0.1:0", Afterwards: []*call{{URL: slow.URL, Every: 4, Connections: 3}}})
	begin := time.Now()
	for range 9 {
		ask(t, root)
	}
	if took := time.Since(begin); took > 150*time.Millisecond {
		t.Errorf("answers waited %v for calls that are made after them", took)
	}
	stop()
	if count := slow.count.Load(); count != 3 {
		t.Errorf("%d calls at 9 requests, want those at the first, fifth and ninth", count)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	busy := newCallee(t, 5*time.Millisecond, 200)
	root, _ := start(t, &service{Name: "root", Listen: "127.0.0.1:0", Steps: [][]*call{{{URL: busy.URL, Connections: 2}}}})
	done := make(chan struct{})
	for range 8 {
		go func() { defer func() { done <- struct{}{} }(); ask(t, root) }()
	}
	for range 8 {
		<-done
	}
	if busy.count.Load() != 8 || busy.most.Load() != 2 {
		t.Errorf("%d calls, %d at once, want 8 over 2 connections", busy.count.Load(), busy.most.Load())
	}
}

func TestACallIsHeldForItsDelay(t *testing.T) {
	quick := newCallee(t, 0, 200)
	root, _ := start(t, &service{Name: "root", Listen: "127.0.0.1:0", Steps: [][]*call{{{URL: quick.URL, DelayUS: 20_000}}}})
	if _, _, took := ask(t, root); took < 20*time.Millisecond {
		t.Errorf("a request took %v", took)
	}
}

func TestNoFailureIsHidden(t *testing.T) {
	broken := newCallee(t, 0, 503)
	root, _ := start(t, &service{Name: "root", Listen: "127.0.0.1:0", Steps: [][]*call{{{URL: broken.URL}}}})
	if status, body, _ := ask(t, root); status != http.StatusBadGateway || !strings.Contains(body, "503") {
		t.Errorf("HTTP %d %q", status, body)
	}
	later, _ := start(t, &service{Name: "root", Listen: "127.0.0.1:0", Afterwards: []*call{{URL: broken.URL, Every: 1000}}})
	if status, _, _ := ask(t, later); status != http.StatusOK {
		t.Errorf("the first answer waited: HTTP %d", status)
	}
	status := http.StatusOK
	for deadline := time.Now().Add(5 * time.Second); status == http.StatusOK && time.Now().Before(deadline); {
		status, _, _ = ask(t, later)
	}
	if status != http.StatusBadGateway {
		t.Error("a failed call after an answer was never reported")
	}
}

func TestBadServices(t *testing.T) {
	for want, text := range map[string]string{
		"no service":  `[]`,
		"given twice": `[{"Name": "a", "Listen": "127.0.0.1:0"}, {"Name": "a", "Listen": "127.0.0.1:0"}]`,
		"no host":     `[{"Name": "a", "Listen": ":80"}]`,
		"no http":     `[{"Name": "a", "Listen": "127.0.0.1:0", "Steps": [[{"URL": "b:80"}]]}]`,
		"negative":    `[{"Name": "a", "Listen": "127.0.0.1:0", "Steps": [[{"URL": "http://b", "Every": -1}]]}]`,
		"is empty":    `[{"Name": "a", "Listen": "127.0.0.1:0", "Steps": [[]]}]`,
		"unexpected":  `[`,
	} {
		path := filepath.Join(t.TempDir(), "services.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"-services", path}, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := run(t.Context(), []string{"-services", "missing"}, io.Discard); err == nil {
		t.Error("a missing file is accepted")
	}
}
