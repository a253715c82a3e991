package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"google.golang.org/protobuf/encoding/protojson"
)

// decider evaluates one prepared query.
type decider struct {
	query    string
	prepared rego.PreparedEvalQuery
}

func newDecider(ctx context.Context, file, policy string, data []byte, query string) (*decider, error) {
	var document map[string]any
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("data: not a JSON object: %w", err)
	}
	prepared, err := rego.New(
		rego.Query(query),
		rego.Module(file, policy),
		rego.Store(inmem.NewFromObject(document)),
	).PrepareForEval(ctx)
	if err != nil {
		return nil, fmt.Errorf("policy %s, query %s: %w", file, query, err)
	}
	return &decider{query, prepared}, nil
}

// inputOf returns the input document of OPA's Envoy plugin, built in the same way (through JSON), so that policies and
// costs carry over. Request bodies are not parsed, because Envoy is not configured to send them.
func inputOf(request *authv3.CheckRequest) (map[string]any, error) {
	text, err := protojson.Marshal(request)
	if err != nil {
		return nil, err
	}
	var input map[string]any
	if err := json.Unmarshal(text, &input); err != nil {
		return nil, err
	}
	uri, err := url.Parse(request.GetAttributes().GetRequest().GetHttp().GetPath())
	if err != nil {
		return nil, err
	}
	input["parsed_path"] = listOf(strings.Split(strings.TrimPrefix(uri.Path, "/"), "/"))
	query := map[string]any{}
	for key, values := range uri.Query() {
		query[key] = listOf(values)
	}
	input["parsed_query"] = query
	input["version"] = map[string]any{"ext_authz": "v3", "encoding": "protojson"}
	return input, nil
}

func listOf(values []string) []any {
	list := make([]any, len(values))
	for i, value := range values {
		list[i] = value
	}
	return list
}

// allows reports whether the query is true for input. Undefined, false and any other value deny.
func (d *decider) allows(ctx context.Context, input map[string]any) (bool, error) {
	value, err := ast.InterfaceToValue(input)
	if err != nil {
		return false, err
	}
	results, err := d.prepared.Eval(ctx, rego.EvalParsedInput(value))
	if err != nil {
		return false, err
	}
	return results.Allowed(), nil
}
