package main

import (
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// shard is a group of proxies that send to the same part of every service's endpoints. With spread k, a service of n
// endpoints is divided into about n/k parts; with spread 0 one shard sends to all.
type shard struct {
	number    int
	parts     map[string]int // by service
	endpoints *cache.LinearCache
}

func newShards(t *topology, members map[string][]node) []shard {
	parts, count := map[string]int{}, 1
	for service := range t.Roles {
		parts[service] = 1
		if t.Spread > 0 {
			parts[service] = max(1, len(members[service])/t.Spread)
		}
		count = max(count, parts[service])
	}
	shards := make([]shard, count)
	for i := range shards {
		made := shard{number: i, parts: parts}
		assignments := map[string]types.Resource{}
		for service := range t.Roles {
			assignments[service] = assignment(service, members[service], made.uses)
		}
		if t.Scope == scopeFull {
			for k := range t.ExtraServices {
				assignments[extraName(k)] = assignment(extraName(k), extraNodes(k, t.ExtraEndpoints), made.uses)
			}
		}
		made.endpoints = fixed(resource.EndpointType, assignments)
		shards[i] = made
	}
	return shards
}

// uses reports whether the shard's proxies send to n. Replicas are assigned in turn, so that the numbers of their callers
// differ by at most one.
func (s shard) uses(n node) bool {
	parts := max(1, s.parts[n.Role]) // an extra service has no role
	return n.number%parts == s.number%parts
}
