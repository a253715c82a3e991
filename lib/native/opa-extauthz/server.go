package main

import (
	"context"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"meshtrial/native/internal/serve"
)

// server is Envoy's authorization service on top of a decider, with counters of the decisions.
type server struct {
	authv3.UnimplementedAuthorizationServer
	decider *decider
	log     *decisionLog // nil: no log

	allowed, denied, errors atomic.Int64
	decisionNS              atomic.Int64
}

// stats is the answer of /stats. Every call ends as exactly one of allowed, denied and errors.
type stats struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Query     string `json:"query"`
	Decisions int64  `json:"decisions"` // allowed + denied
	Allowed   int64  `json:"allowed"`
	Denied    int64  `json:"denied"`
	Errors    int64  `json:"errors"` // failed evaluations: Envoy denies, unless configured to fail open
	// DecisionSeconds is the time from call to answer inside this process, summed over all calls.
	DecisionSeconds float64 `json:"decision_s_sum"`
	Logged          int64   `json:"logged"`
	LogErrors       int64   `json:"log_errors"`
}

func (s *server) stats() stats {
	allowed, denied := s.allowed.Load(), s.denied.Load()
	answer := stats{
		Name: name, Version: serve.Version, Query: s.decider.query,
		Decisions: allowed + denied, Allowed: allowed, Denied: denied, Errors: s.errors.Load(),
		DecisionSeconds: time.Duration(s.decisionNS.Load()).Seconds(),
	}
	if s.log != nil {
		answer.Logged, answer.LogErrors = s.log.written.Load(), s.log.failed.Load()
	}
	return answer
}

// Check decides one request.
func (s *server) Check(ctx context.Context, request *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	start := time.Now()
	defer func() { s.decisionNS.Add(int64(time.Since(start))) }()
	input, err := inputOf(request)
	if err != nil {
		s.errors.Add(1)
		return nil, status.Errorf(codes.InvalidArgument, "input: %v", err)
	}
	allowed, err := s.decider.allows(ctx, input)
	if err != nil {
		s.errors.Add(1)
		return nil, status.Errorf(codes.Internal, "evaluation: %v", err)
	}
	if s.log != nil {
		s.log.write(start, s.decider.query, input, allowed)
	}
	if allowed {
		s.allowed.Add(1)
		return &authv3.CheckResponse{Status: &statuspb.Status{Code: int32(codes.OK)}}, nil
	}
	s.denied.Add(1)
	return &authv3.CheckResponse{
		Status: &statuspb.Status{Code: int32(codes.PermissionDenied)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode_Forbidden},
			Headers: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-denied-by", Value: name}}},
			Body:    "denied by policy\n",
		}},
	}, nil
}
