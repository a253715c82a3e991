package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"meshtrial/native/internal/servetest"
)

func start(t *testing.T, args ...string) (url string, stop func()) {
	t.Helper()
	var ready struct{ HTTP string }
	stop = servetest.Start(t, run, &ready, append([]string{"-listen", "127.0.0.1:0"}, args...)...)
	return "http://" + ready.HTTP, stop
}

func client(http2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	return &http.Client{Transport: &http.Transport{Protocols: protocols}}
}

func ask(t *testing.T, client *http.Client, method, url string) (value int64, response *http.Response) {
	t.Helper()
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err = client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body struct{ Counter int64 }
	if response.StatusCode == http.StatusOK && json.Unmarshal(text, &body) != nil {
		t.Fatalf("body %q", text)
	}
	return body.Counter, response
}

func TestCountsOverBothProtocols(t *testing.T) {
	url, stop := start(t)
	for i, http2 := range []bool{false, true} {
		client := client(http2)
		value, response := ask(t, client, http.MethodPost, url+"/counter")
		if value != int64(i+1) || response.ProtoMajor != i+1 {
			t.Errorf("counter %d over HTTP/%d, want %d", value, response.ProtoMajor, i+1)
		}
		if response.Header.Get("Content-Type") != "application/json" || response.ContentLength < 0 {
			t.Errorf("headers %v", response.Header)
		}
		if again, _ := ask(t, client, http.MethodGet, url+"/counter"); again != value {
			t.Errorf("a read changed %d to %d", value, again)
		}
		client.CloseIdleConnections()
	}
	if _, response := ask(t, client(false), http.MethodDelete, url+"/counter"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("DELETE: %d", response.StatusCode)
	}
	stop()
}

func TestNoIncrementIsLost(t *testing.T) {
	url, _ := start(t, "-nodelay=false")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				ask(t, http.DefaultClient, http.MethodPost, url+"/counter")
			}
		})
	}
	group.Wait()
	if value, _ := ask(t, http.DefaultClient, http.MethodGet, url+"/counter"); value != 400 {
		t.Errorf("counter %d, want 8 x 50", value)
	}
}

func TestWorkTakesItsTime(t *testing.T) {
	url, _ := start(t, "-work", "20ms")
	begin := time.Now()
	ask(t, http.DefaultClient, http.MethodGet, url+"/counter")
	if took := time.Since(begin); took < 20*time.Millisecond {
		t.Errorf("a request took %v", took)
	}
}

func TestBadUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"negative": {"-work", "-1s"}, "no host": {"-listen", ":80"}, "unexpected": {"x"},
	} {
		if err := run(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
