// Package callstest has a payment provider that misbehaves, for tests of programs that use package calls.
package callstest

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// A Provider is a payment provider's API in memory, an http.Handler:
//
//	POST /charges, with Idempotency-Key and {"reference": "…", "cents": 1000}    charges once for each key that it remembers
//	GET  /charges/REFERENCE                                                    200 with the charge, or 404
//
// It is safe for concurrent use. Set its fields before use.
type Provider struct {
	// Remembers is how long it knows an idempotency key.
	//
	// Defaults to 0: it ignores keys.
	Remembers time.Duration

	// Misbehave says what goes wrong with a charge.
	//
	// Defaults to nothing.
	Misbehave func() Fault

	// Late is how late Late answers and AppliesLate applies.
	Late time.Duration

	mu      sync.Mutex
	charges map[string]int       // by reference
	keys    map[string]time.Time // when they were first seen
	running map[string]bool      // keys of requests that have not been answered
	faults  map[Fault]int
	repeats int
}

// Fault is what goes wrong with a charge.
type Fault string

// Faults.
const (
	None         Fault = ""
	Cuts         Fault = "cuts the connection before it charges"
	CutsAfter    Fault = "charges, and cuts the connection"
	Fails        Fault = "answers 500 without charging"
	FailsAfter   Fault = "charges, and answers 500"
	Limits       Fault = "answers 429"
	AnswersLate  Fault = "charges, and answers late"
	AppliesLater Fault = "cuts the connection, and charges later"
)

// Sometimes returns a Misbehave where one of n charges suffers one of the faults.
func Sometimes(n int) func() Fault {
	all := []Fault{Cuts, CutsAfter, Fails, FailsAfter, Limits, AnswersLate, AppliesLater}
	return func() Fault {
		if rand.IntN(n) > 0 {
			return None
		}
		return all[rand.IntN(len(all))]
	}
}

type charge struct {
	Reference string `json:"reference"`
	Cents     int64  `json:"cents"`
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.charge)
	mux.HandleFunc("GET /charges/{reference}", func(w http.ResponseWriter, r *http.Request) {
		reference := r.PathValue("reference")
		if p.Charges()[reference] == 0 {
			http.Error(w, "no such charge", http.StatusNotFound)
			return
		}
		answer(w, reference)
	})
	mux.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, reference string) {
	_ = json.NewEncoder(w).Encode(map[string]string{"id": "ch_" + reference}) // the client may be gone
}

func (p *Provider) charge(w http.ResponseWriter, r *http.Request) {
	var c charge
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil || c.Reference == "" {
		http.Error(w, "want a reference", http.StatusBadRequest)
		return
	}
	fault := None
	if p.Misbehave != nil {
		fault = p.Misbehave()
	}
	p.count(fault)
	switch fault {
	case Cuts:
		panic(http.ErrAbortHandler)
	case Fails:
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	case Limits:
		w.Header().Set("Retry-After", "0")
		http.Error(w, "too many", http.StatusTooManyRequests)
		return
	case AppliesLater:
		<-time.After(p.Late / 2)
	default:
	}
	key := r.Header.Get("Idempotency-Key")
	if !p.apply(key, c.Reference) {
		http.Error(w, "a request with this key is running", http.StatusConflict)
		return
	}
	defer p.ended(key)
	switch fault {
	case CutsAfter, AppliesLater:
		panic(http.ErrAbortHandler)
	case FailsAfter:
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	case AnswersLate:
		<-time.After(p.Late)
	default:
	}
	answer(w, c.Reference)
}

// apply charges unless it remembers key. It returns false while a request with key runs.
func (p *Provider) apply(key, reference string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.charges == nil {
		p.charges, p.keys, p.running = map[string]int{}, map[string]time.Time{}, map[string]bool{}
	}
	if p.Remembers == 0 || key == "" {
		p.charges[reference]++
		return true
	}
	if p.running[key] {
		return false
	}
	p.running[key] = true
	if seen, ok := p.keys[key]; ok && time.Since(seen) < p.Remembers {
		p.repeats++
		return true
	}
	p.keys[key] = time.Now()
	p.charges[reference]++
	return true
}

func (p *Provider) ended(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.running, key)
}

func (p *Provider) count(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults == nil {
		p.faults = map[Fault]int{}
	}
	p.faults[f]++
}

// Charges returns how often each reference was charged.
func (p *Provider) Charges() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.charges)
}

// Faults returns how often each fault has happened, and how many requests had a key that was remembered.
func (p *Provider) Faults() (faults map[Fault]int, repeats int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults), p.repeats
}
