package storm

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Report is what a storm has shown. Its form as JSON is that of "txonce storm --json".
type Report struct {
	Keys    int  `json:"keys"`
	Clients int  `json:"clients"` // of each key
	Jitter  bool `json:"jitter"`

	Requests int            `json:"requests"` // that were sent
	Cut      int            `json:"cut"`      // that got no answer on purpose
	Failed   int            `json:"failed"`   // that got none otherwise
	Statuses map[string]int `json:"statuses"` // answers, by status
	Replayed int            `json:"replayed"` // answers with "Idempotent-Replayed: true"
	Final    int            `json:"final"`    // clients that got a final answer
	NoAnswer int            `json:"no_final_answer"`

	Succeeded int     `json:"succeeded_keys"`  // keys with a 2xx
	Effects   *int    `json:"effects"`         // nil: they were not counted
	Peak      int     `json:"peak_per_100_ms"` // the most retries that began within 100 ms
	Seconds   float64 `json:"seconds"`

	Latency Latency `json:"latency_seconds"` // of tries that got an answer

	Findings []string `json:"findings"` // what is wrong; empty: the API has passed
	Notes    []string `json:"notes"`    // what the storm could not see
}

// Latency has percentiles, in seconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// seen counts what happened. It is safe for concurrent use.
type seen struct {
	mu       sync.Mutex
	requests int
	cut      int
	failed   int
	replayed int
	statuses map[string]int
	took     []time.Duration
	retries  []time.Time // when they began
}

func (s *seen) start(now time.Time, retry bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if retry {
		s.retries = append(s.retries, now)
	}
}

func (s *seen) add(a answer, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, errCut):
		s.cut++
		return
	case err != nil:
		s.failed++
		return
	}
	s.statuses[strconv.Itoa(a.status)]++
	s.took = append(s.took, a.took)
	if a.replayed {
		s.replayed++
	}
}

// peak is how many retries began within one window of 100 ms.
func (s *seen) peak() (most int) {
	slices.SortFunc(s.retries, time.Time.Compare)
	from := 0
	for to, at := range s.retries {
		for at.Sub(s.retries[from]) > 100*time.Millisecond {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

func (s *seen) latency() Latency {
	if len(s.took) == 0 {
		return Latency{}
	}
	slices.Sort(s.took)
	at := func(share float64) float64 { return s.took[int(share*float64(len(s.took)-1))].Seconds() }
	return Latency{P50: at(.5), P95: at(.95), P99: at(.99), Max: at(1)}
}
