package storm

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
)

// storm is one run.
type storm struct {
	cfg  Config
	seen seen
}

// Run sends the storm and reports. It fails if the Config is wrong, if ctx ends, if Config.Effects fails, or if no
// request got an answer. What is wrong with the API is in Report.Findings.
func Run(ctx context.Context, cfg Config) (r Report, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return r, err
	}
	if idle, ok := cfg.Transport.(interface{ CloseIdleConnections() }); ok {
		defer idle.CloseIdleConnections()
	}
	s := &storm{cfg: cfg, seen: seen{statuses: map[string]int{}}}
	began := time.Now()
	before, err := s.effects(ctx)
	if err != nil {
		return r, err
	}
	r = Report{Keys: cfg.Keys, Clients: cfg.Clients, Jitter: cfg.Jitter, Findings: []string{}, Notes: []string{}}
	contents := map[[sha256.Size]byte]bool{}
	for n := range cfg.Keys {
		finals := s.key(ctx, n)
		if ctx.Err() != nil {
			return r, fmt.Errorf("storm: after %d of %d keys: %w", n, cfg.Keys, context.Cause(ctx))
		}
		r.judge(n, cfg.Clients, finals, contents)
	}
	if s.seen.requests == s.seen.failed+s.seen.cut {
		return r, fmt.Errorf("storm: none of %d requests to %s got an answer", s.seen.requests, cfg.URL)
	}
	if cfg.Effects != nil {
		if err := sleep(ctx, cfg.Settle); err != nil {
			return r, err
		}
		after, err := s.effects(ctx)
		if err != nil {
			return r, err
		}
		r.count(after - before)
	}
	r.Requests, r.Cut, r.Failed, r.Replayed = s.seen.requests, s.seen.cut, s.seen.failed, s.seen.replayed
	r.Statuses, r.Latency, r.Peak = s.seen.statuses, s.seen.latency(), s.seen.peak()
	r.Seconds = time.Since(began).Seconds()
	r.note(len(contents))
	return r, nil
}

func (s *storm) effects(ctx context.Context) (n int, err error) {
	if s.cfg.Effects == nil {
		return 0, nil
	}
	if n, err = s.cfg.Effects(ctx); err != nil {
		return n, fmt.Errorf("storm: Config.Effects: %w", err)
	}
	return n, nil
}

// key lets all clients send the nth request at the same moment, and returns their final answers.
func (s *storm) key(ctx context.Context, n int) (finals []answer) {
	key, body := "storm-"+rand.Text(), strings.ReplaceAll(s.cfg.Body, "{n}", strconv.Itoa(n))
	begin := make(chan struct{})
	var mu sync.Mutex
	var clients sync.WaitGroup
	for range s.cfg.Clients {
		clients.Go(func() {
			<-begin
			if a, ok := s.client(ctx, key, body); ok {
				mu.Lock()
				defer mu.Unlock()
				finals = append(finals, a)
			}
		})
	}
	close(begin)
	clients.Wait()
	return finals
}

// judge adds the final answers to one key.
func (r *Report) judge(n, clients int, finals []answer, contents map[[sha256.Size]byte]bool) {
	r.Final += len(finals)
	if missing := clients - len(finals); missing > 0 {
		r.NoAnswer += missing
		r.found("key %d: %d of %d clients got no final answer", n, missing, clients)
	}
	different, statuses, ok := map[[sha256.Size]byte]bool{}, map[int]bool{}, false
	for _, a := range finals {
		statuses[a.status] = true
		if a.ok() {
			ok = true
			different[a.content], contents[a.content] = true, true
		}
	}
	if ok {
		r.Succeeded++
	}
	switch {
	case len(different) > 1:
		r.found("key %d: %d different answers with 2xx: the request ran more than once", n, len(different))
	case len(statuses) > 1:
		r.found("key %d: final answers with different statuses: %v", n, keysOf(statuses))
	}
}

// count compares the effects with the keys that succeeded.
func (r *Report) count(effects int) {
	r.Effects = &effects
	unknown := 0 // keys without a 2xx may have had an effect, if no client got a final answer
	if r.NoAnswer > 0 {
		unknown = r.Keys - r.Succeeded
	}
	switch {
	case effects > r.Succeeded+unknown:
		r.found("%d effects of %d keys that succeeded: %d too many", effects, r.Succeeded, effects-r.Succeeded-unknown)
	case effects < r.Succeeded:
		r.found("%d effects of %d keys that succeeded: %d are missing", effects, r.Succeeded, r.Succeeded-effects)
	}
}

// note says what the storm could not see.
func (r *Report) note(contents int) {
	if r.Succeeded == 0 {
		r.found("no key got a 2xx: %v", r.Statuses)
		return
	}
	if r.Effects == nil {
		r.Notes = append(r.Notes, "effects were not counted: a handler that ran twice with equal answers was not noticed")
		if contents == 1 && r.Keys > 1 {
			r.Notes = append(r.Notes, "all answers are equal, whatever the key is: they cannot show how often a handler ran")
		}
	}
	if r.Replayed == 0 && r.Keys*r.Clients > r.Keys {
		r.Notes = append(r.Notes, "no answer had the header Idempotent-Replayed")
	}
}

// mostFindings is how many findings a Report has.
const mostFindings = 20

func (r *Report) found(format string, args ...any) {
	if len(r.Findings) < mostFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

func keysOf(m map[int]bool) (all []int) {
	for k := range m {
		all = append(all, k)
	}
	return all
}

var errNotCounted = errors.New("want a JSON number, or a JSON array whose elements are the effects")
