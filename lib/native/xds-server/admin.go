package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"meshtrial/native/internal/serve"
)

// longestWait limits /converged?wait=.
const longestWait = 5 * time.Minute

// overview is the answer of /stats.
type overview struct {
	Name       string             `json:"name"`
	Version    string             `json:"version"`
	Scope      string             `json:"scope"`
	Nodes      int                `json:"nodes"` // expected sidecars
	Connected  int                `json:"connected"`
	Configured int                `json:"configured"` // sidecars that acknowledged everything they need
	Opened     int64              `json:"streams_opened"`
	Closed     int64              `json:"streams_closed"`
	Refused    int64              `json:"unknown_nodes"`
	Pushes     int64              `json:"pushes"`
	Bytes      int64              `json:"bytes_pushed"`
	ByType     map[string]traffic `json:"by_type"`
	Acks       int64              `json:"acks"`
	Nacks      int64              `json:"nacks"`
	LastNack   *nack              `json:"last_nack"`
	Endpoints  map[string]int     `json:"endpoints"`
	Versions   []report           `json:"versions"`
}

func (p *plane) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { serve.JSON(w, map[string]bool{"ok": true}) })
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) { serve.JSON(w, p.stats()) })
	mux.HandleFunc("GET /converged", p.serveConverged)
	mux.HandleFunc("GET /bootstrap", p.serveBootstrap)
	mux.HandleFunc("POST /endpoints", p.serveAdd)
	mux.HandleFunc("PUT /endpoints", p.serveReplace)
	mux.HandleFunc("PUT /routes", p.serveRoutes)
	mux.HandleFunc("PUT /authorization", p.serveAuthorization)
	mux.HandleFunc("DELETE /endpoints", func(w http.ResponseWriter, r *http.Request) {
		p.answerChange(w)(p.remove(r.URL.Query().Get("id")))
	})
	return mux
}

func (p *plane) stats() overview {
	answer := overview{
		Name: name, Version: serve.Version, Scope: p.topology.Scope, ByType: map[string]traffic{}, Endpoints: map[string]int{},
	}
	for short, kind := range map[string]string{
		"cds": resource.ClusterType, "eds": resource.EndpointType, "lds": resource.ListenerType, "rds": resource.RouteType,
	} {
		sum := p.bytes.of(kind)
		answer.ByType[short] = sum
		answer.Pushes += sum.Pushes
		answer.Bytes += sum.Bytes
	}
	p.mu.RLock()
	for service := range p.topology.Roles {
		answer.Endpoints[service] = len(p.members[service])
	}
	p.mu.RUnlock()
	t := p.tracker
	t.mu.Lock()
	defer t.mu.Unlock()
	answer.Nodes, answer.Connected = len(t.expected), len(t.proxies)
	answer.Opened, answer.Closed, answer.Refused = t.opened, t.closed, t.refused
	answer.Acks, answer.Nacks, answer.LastNack = t.acks, t.nacks, t.lastNack
	for _, proxy := range t.proxies {
		if t.configured(proxy) {
			answer.Configured++
		}
	}
	for _, c := range t.changes {
		answer.Versions = append(answer.Versions, c.report())
	}
	return answer
}

// serveConverged reports which proxies have a version; with wait=10s it answers when all have it, or after that time.
func (p *plane) serveConverged(w http.ResponseWriter, r *http.Request) {
	version, err := strconv.Atoi(r.URL.Query().Get("version"))
	asked := p.tracker.change(version)
	if err != nil || asked == nil {
		refuse(w, http.StatusNotFound, fmt.Errorf("version %q does not exist: 1 is the initial configuration", r.URL.Query().Get("version")))
		return
	}
	if text := r.URL.Query().Get("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 || wait > longestWait {
			refuse(w, http.StatusBadRequest, fmt.Errorf("wait=%q is not a duration of at most %v", text, longestWait))
			return
		}
		select {
		case <-asked.done:
		case <-r.Context().Done():
		case <-time.After(wait):
		}
	}
	serve.JSON(w, p.tracker.report(asked))
}

func (p *plane) serveBootstrap(w http.ResponseWriter, r *http.Request) {
	p.mu.RLock()
	n, ok := p.nodes[r.URL.Query().Get("node")]
	p.mu.RUnlock()
	if !ok {
		refuse(w, http.StatusNotFound, fmt.Errorf("node %q is not in the topology", r.URL.Query().Get("node")))
		return
	}
	text, err := protojson.Marshal(bootstrap(n, p.address))
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// serveAdd adds a node, given in the topology file's form.
func (p *plane) serveAdd(w http.ResponseWriter, r *http.Request) {
	var n node
	if decode(w, r, &n) {
		p.answerChange(w)(p.add(n))
	}
}

// serveReplace replaces all endpoints of a service; each has the form of a node.
func (p *plane) serveReplace(w http.ResponseWriter, r *http.Request) {
	var nodes []node
	if decode(w, r, &nodes) {
		p.answerChange(w)(p.replace(r.URL.Query().Get("service"), nodes))
	}
}

// serveRoutes sets the weights of the services to which a role's calls are routed.
func (p *plane) serveRoutes(w http.ResponseWriter, r *http.Request) {
	var weights map[string]uint32
	if decode(w, r, &weights) {
		answerTaken(w)(p.route(r.URL.Query().Get("role"), weights))
	}
}

func (p *plane) serveAuthorization(w http.ResponseWriter, r *http.Request) {
	allowed, err := strconv.ParseBool(r.URL.Query().Get("allowed"))
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("allowed=%q is neither true nor false", r.URL.Query().Get("allowed")))
		return
	}
	answerTaken(w)(p.authorize(r.URL.Query().Get("role"), allowed))
}

func decode(w http.ResponseWriter, r *http.Request, value any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(value)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
	}
	return err == nil
}

// taken is when this server accepted a change, by the machine's clock.
type taken struct {
	UnixS float64 `json:"taken_unix_s"`
}

func unixS(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }

func answerTaken(w http.ResponseWriter) func(time.Time, error) {
	return func(at time.Time, err error) {
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		serve.JSON(w, taken{unixS(at)})
	}
}

func (p *plane) answerChange(w http.ResponseWriter) func(*change, error) {
	return func(begun *change, err error) {
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		serve.JSON(w, p.tracker.report(begun))
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}
