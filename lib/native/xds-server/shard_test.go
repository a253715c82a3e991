package main

import (
	"fmt"
	"testing"
)

func TestSpreadIsEven(t *testing.T) {
	for _, test := range []struct{ replicas, spread, used int }{
		{10, 0, 10}, // all
		{10, 5, 5},
		{10, 10, 10},
		{10, 50, 10}, // no more than there are
		{12, 3, 3},
		{7, 3, 3}, // two parts of 4 and 3
	} {
		made := mesh(t, test.replicas, scopeFull, 1)
		made.Spread = test.spread
		p, err := newPlane(made, "127.0.0.1:1", 0)
		if err != nil {
			t.Fatal(err)
		}
		callers := map[string]int{} // of each server, over all clients
		for k := range test.replicas {
			client := p.nodes[fmt.Sprintf("client-%d", k)]
			used := 0
			for _, server := range p.members["server"] {
				if p.shards[client.number%len(p.shards)].uses(server) {
					used++
					callers[server.ID]++
				}
			}
			if used < test.used || used > test.used+1 {
				t.Errorf("%+v: client %d sends to %d", test, k, used)
			}
		}
		least, most := test.replicas, 0
		for _, server := range p.members["server"] {
			least, most = min(least, callers[server.ID]), max(most, callers[server.ID])
		}
		if least == 0 || most-least > 1 {
			t.Errorf("%+v: a server has %d to %d callers", test, least, most)
		}
	}
}
