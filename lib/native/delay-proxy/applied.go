package main

import (
	"math/bits"
	"sync"
	"time"
)

// applied sums the delays that were really applied. One lock per chunk is cheap compared with a system call.
type applied struct {
	mu       sync.Mutex
	count    int64
	sum      time.Duration
	min, max time.Duration
	// excess counts delays by their excess over the requested delay: bucket i is [2^(i-1), 2^i) ns, bucket 0 is none.
	excess [64]int64
}

// summary has the delays in /stats, in nanoseconds.
type summary struct {
	Count int64 `json:"count"`
	Mean  int64 `json:"mean_ns"`
	Min   int64 `json:"min_ns"`
	Max   int64 `json:"max_ns"`
	// Upper bounds of quantiles of the excess over the requested delay, within a factor of two.
	ExcessP50 int64 `json:"excess_p50_ns_below"`
	ExcessP99 int64 `json:"excess_p99_ns_below"`
}

func (a *applied) add(asked, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count == 0 || took < a.min {
		a.min = took
	}
	a.max = max(a.max, took)
	a.count++
	a.sum += took
	a.excess[bits.Len64(uint64(max(took-asked, 0)))]++
}

func (a *applied) summary() summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := summary{Count: a.count, Min: int64(a.min), Max: int64(a.max)}
	if a.count > 0 {
		s.Mean = int64(a.sum) / a.count
		s.ExcessP50, s.ExcessP99 = a.excessQuantile(0.50), a.excessQuantile(0.99)
	}
	return s
}

// excessQuantile returns the upper edge of the bucket that contains quantile q.
func (a *applied) excessQuantile(q float64) int64 {
	left := int64(q * float64(a.count))
	for i, n := range a.excess {
		if left -= n; left < 0 {
			return 1 << i
		}
	}
	return int64(a.max)
}
