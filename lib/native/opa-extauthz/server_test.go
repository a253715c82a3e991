package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protojson"

	"meshtrial/native/internal/servetest"
)

func check(method, path, authorization string) *authv3.CheckRequest {
	http := &authv3.AttributeContext_HttpRequest{Method: method, Path: path, Headers: map[string]string{":method": method}}
	if authorization != "" {
		http.Headers["authorization"] = authorization
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: http},
	}}
}

func write(t *testing.T, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// started runs the whole program on free ports and ends it with the test.
type started struct {
	client     authv3.AuthorizationClient
	connection *grpc.ClientConn
	admin      string
	stop       func()
}

func start(t *testing.T, args ...string) started {
	t.Helper()
	var ready struct{ GRPC, Admin string }
	stop := servetest.Start(t, run, &ready, append([]string{"-grpc", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...)...)
	connection, err := grpc.NewClient(ready.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return started{authv3.NewAuthorizationClient(connection), connection, ready.Admin, stop}
}

func (s started) stats(t *testing.T) (answer stats) {
	t.Helper()
	servetest.Stats(t, s.admin, &answer)
	return answer
}

func TestDefaultPolicy(t *testing.T) {
	key, other := newKey(t), newKey(t)
	good := rs256(t, key, validClaims())
	parts := strings.Split(good, ".")
	now := time.Now().Unix()
	running := start(t, "-data", write(t, "data.json", dataFor(key)))
	var allowed, denied int64
	for _, test := range []struct {
		name, method, authorization string
		want                        bool
	}{
		{"good GET", "GET", "Bearer " + good, true},
		{"good POST", "POST", "Bearer " + good, true},
		{"audience list", "GET", "Bearer " + rs256(t, key, claims("aud", []string{"x", audience})), true},
		{"other method", "DELETE", "Bearer " + good, false},
		{"none", "GET", "", false},
		{"empty", "GET", "Bearer ", false},
		{"other scheme", "GET", "Basic " + good, false},
		{"no token", "GET", "Bearer nonsense", false},
		{"three empty parts", "GET", "Bearer ..", false},
		{"forged", "GET", "Bearer " + rs256(t, other, validClaims()), false},
		{"payload exchanged", "GET", "Bearer " + parts[0] + "." + encode(claims("sub", "admin")) + "." + parts[2], false},
		{"cut signature", "GET", "Bearer " + good[:len(good)-4], false},
		{"unsigned", "GET", "Bearer " + unsigned(validClaims()), false},
		{"HMAC confusion", "GET", "Bearer " + confused(key, validClaims()), false},
		{"expired", "GET", "Bearer " + rs256(t, key, claims("exp", now-1)), false},
		{"without exp", "GET", "Bearer " + rs256(t, key, claims("exp", nil)), false},
		{"not yet valid", "GET", "Bearer " + rs256(t, key, claims("nbf", now+600)), false},
		{"other issuer", "GET", "Bearer " + rs256(t, key, claims("iss", "https://other.test")), false},
		{"no issuer", "GET", "Bearer " + rs256(t, key, claims("iss", nil)), false},
		{"other audience", "GET", "Bearer " + rs256(t, key, claims("aud", "other")), false},
		{"no audience", "GET", "Bearer " + rs256(t, key, claims("aud", nil)), false},
	} {
		response, err := running.client.Check(t.Context(), check(test.method, "/counter", test.authorization))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if got := response.Status.Code == int32(codes.OK); got != test.want {
			t.Errorf("%s: allowed %v, want %v", test.name, got, test.want)
		}
		if test.want {
			allowed++
			continue
		}
		denied++
		if status := response.GetDeniedResponse().GetStatus().GetCode(); status != typev3.StatusCode_Forbidden {
			t.Errorf("%s: denied with %v, want 403", test.name, status)
		}
	}
	stats := running.stats(t)
	if stats.Allowed != allowed || stats.Denied != denied || stats.Errors != 0 || stats.Decisions != allowed+denied {
		t.Errorf("stats %+v, want %d allowed and %d denied", stats, allowed, denied)
	}
	if stats.DecisionSeconds <= 0 {
		t.Errorf("no time passed in %d decisions", stats.Decisions)
	}
}

func TestOwnPolicyAndQuery(t *testing.T) {
	policy := write(t, "own.rego", []byte("package own\n\nok if input.parsed_path == [\"a\", \"b\"]\n\nok if input.parsed_query.q == [\"1\"]\n"))
	running := start(t, "-policy", policy, "-query", "data.own.ok")
	for path, want := range map[string]codes.Code{
		"/a/b": codes.OK, "/a": codes.PermissionDenied, "/c?q=1": codes.OK, "/c?q=2": codes.PermissionDenied,
	} {
		response, err := running.client.Check(t.Context(), check("PUT", path, ""))
		if err != nil || response.Status.Code != int32(want) {
			t.Errorf("%s: %v %v, want %v", path, response, err, want)
		}
	}
}

func TestDecisionLogHasEveryDecisionAndNoToken(t *testing.T) {
	key := newKey(t)
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	running := start(t, "-data", write(t, "data.json", dataFor(key)), "-decision-log", file)
	token := rs256(t, key, validClaims())
	for i := range 10 {
		authorization := "Bearer " + token
		if i%2 == 1 {
			authorization += "x"
		}
		if _, err := running.client.Check(t.Context(), check("GET", fmt.Sprintf("/%d", i), authorization)); err != nil {
			t.Fatal(err)
		}
	}
	if logged := running.stats(t).Logged; logged != 10 {
		t.Errorf("logged %d", logged)
	}
	running.stop()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(lines) != 10 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var logged decision
		if err := json.Unmarshal(line, &logged); err != nil {
			t.Fatal(err)
		}
		if logged.Result != (i%2 == 0) || !strings.Contains(string(line), fmt.Sprintf(`"path":"/%d"`, i)) {
			t.Errorf("line %d: %s", i, line)
		}
	}
	if strings.Contains(string(text), token) {
		t.Error("the token is in the log")
	}
}

func TestMaskingLeavesTheInputAlone(t *testing.T) {
	input, err := inputOf(check("GET", "/", "Bearer secret"))
	if err != nil {
		t.Fatal(err)
	}
	withoutToken(input)
	if text, _ := json.Marshal(input); !strings.Contains(string(text), "Bearer secret") {
		t.Errorf("the policy would see %s", text)
	}
}

func TestInputIsWhatEnvoySent(t *testing.T) {
	request := check("GET", "/a?b=c", "Bearer x")
	input, err := inputOf(request)
	if err != nil {
		t.Fatal(err)
	}
	for _, added := range []string{"version", "parsed_path", "parsed_query"} {
		delete(input, added)
	}
	text, _ := json.Marshal(input)
	var again authv3.CheckRequest
	if err := protojson.Unmarshal(text, &again); err != nil || again.String() != request.String() {
		t.Errorf("%s: %v", text, err)
	}
}

func TestHealth(t *testing.T) {
	running := start(t)
	answer, err := healthv1.NewHealthClient(running.connection).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || answer.Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("gRPC health: %v %v", answer, err)
	}
	response, err := http.Get("http://" + running.admin + "/health")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("admin health: %v %v", response, err)
	}
	running.stop()
}

func TestWhatIsWrongIsSaidBeforeListening(t *testing.T) {
	for want, args := range map[string][]string{
		"policy: open":         {"-policy", "/no/such/file"},
		"rego_parse_error":     {"-policy", write(t, "bad.rego", []byte("package x\n\nallow if {"))},
		"data: not a JSON":     {"-data", write(t, "bad.json", []byte("[1]"))},
		"query data.x[":        {"-query", "data.x["},
		"address":              {"-grpc", ":0"},
		"decision log: open":   {"-decision-log", "/no/such/folder/log"},
		"unexpected argument":  {"more"},
		"not defined: -polici": {"-polici", "x"},
	} {
		err := run(t.Context(), args, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

func BenchmarkDecision(b *testing.B) {
	var t testing.T
	key := newKey(&t)
	decider, err := newDecider(b.Context(), "policy.rego", defaultPolicy, dataFor(key), "data.meshtrial.allow")
	if err != nil {
		b.Fatal(err)
	}
	request := check("GET", "/counter", "Bearer "+rs256(&t, key, validClaims()))
	for b.Loop() {
		input, _ := inputOf(request)
		if ok, err := decider.allows(b.Context(), input); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
