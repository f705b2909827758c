package outboxtest

// This file and the other broken_* files show that the suites can fail: each store and each publisher in them breaks
// one rule, and the case that is named after the rule must say so. They are in the package itself because most rules
// are broken most plainly inside Memory.

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/outbox/driver"
)

// recorder is a testing.TB that records failures and does not fail the test.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Logf(string, ...any) {}

// record runs one case in a synctest bubble, and returns its failures.
func record(t *testing.T, run func(t *testing.T, tb testing.TB)) (said string) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{TB: t}
		done := make(chan struct{})
		go func() { // for Fatalf to end
			defer close(done)
			run(t, rec)
		}()
		<-done
		rec.mu.Lock()
		defer rec.mu.Unlock()
		said = strings.Join(rec.said, "\n")
	})
	return said
}

// brokenStore breaks one rule, and is found by at least these cases.
type brokenStore struct {
	name   string
	found  []string
	early  bool // sequence numbers are assigned in Enqueue
	breaks func(m *Memory, o *Outbox[*Tx])
}

// hooks replace methods of a Memory's sessions. Each may call the session's own method.
type hooks struct {
	*Memory
	renew  func(s *session, ctx context.Context) (driver.Hold, error)
	lease  func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error)
	settle func(s *session, ctx context.Context, all []driver.Outcome) error
	close  func(s *session, ctx context.Context) error
	tidy   func(s *session, ctx context.Context) error
	wake   <-chan struct{}
}

type hooked struct {
	*session
	h *hooks
}

func (h *hooks) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := h.Memory.Open(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &hooked{s.(*session), h}, nil
}

func (s *hooked) Renew(ctx context.Context) (driver.Hold, error) {
	if s.h.renew != nil {
		return s.h.renew(s.session, ctx)
	}
	return s.session.Renew(ctx)
}

func (s *hooked) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	if s.h.lease != nil {
		return s.h.lease(s.session, ctx, want)
	}
	return s.session.Lease(ctx, want)
}

func (s *hooked) Settle(ctx context.Context, all []driver.Outcome) error {
	if s.h.settle != nil {
		return s.h.settle(s.session, ctx, slices.Clone(all))
	}
	return s.session.Settle(ctx, all)
}

func (s *hooked) Close(ctx context.Context) error {
	if s.h.close != nil {
		return s.h.close(s.session, ctx)
	}
	return s.session.Close(ctx)
}

func (s *hooked) Maintain(ctx context.Context) error {
	if s.h.tidy != nil {
		return s.h.tidy(s.session, ctx)
	}
	return s.session.Maintain(ctx)
}

func (s *hooked) Wake() <-chan struct{} {
	if s.h.wake != nil {
		return s.h.wake
	}
	return s.session.Wake()
}

func memoryHarness(b brokenStore) Harness[*Tx] {
	return Harness[*Tx]{
		Features: Features{LateSequence: true},
		New: func(_ *testing.T, opts Options) Outbox[*Tx] {
			m := &Memory{KeepSent: opts.KeepSent, EarlySequence: b.early}
			m.open()
			o := Outbox[*Tx]{
				Writer: m, Queue: m, Operations: m, InTx: m.InTx, SetBack: m.SetBack,
				LockOrderingKey: m.LockOrderingKey,
				Sent:            func(*testing.T) []string { return m.Sent() },
			}
			if b.breaks != nil {
				b.breaks(m, &o)
			}
			return o
		},
	}
}

func TestOutboxSuiteFindsBrokenStores(t *testing.T) {
	cases := map[string]storeCase[*Tx]{}
	for _, c := range storeCases[*Tx]() {
		cases[c.name] = c
	}
	found := map[string]bool{}
	for _, b := range slices.Concat(brokenWriters(), brokenLeases(), brokenSessions(), brokenFences(), brokenParkings(),
		brokenUpkeep(), brokenStrangers()) {
		t.Run(b.name, func(t *testing.T) {
			for _, name := range b.found {
				c, ok := cases[name]
				if !ok {
					t.Fatalf("%q is no case", name)
				}
				found[name] = true
				said := record(t, func(t *testing.T, tb testing.TB) { c.run(newEnv(t, tb, memoryHarness(b), c)) })
				if said == "" {
					t.Errorf("case %q does not find it", name)
				} else if !strings.Contains(said, c.hazard) {
					t.Errorf("case %q does not name the hazard: %s", name, said)
				} else {
					t.Logf("%s: %.200s", name, said)
				}
			}
		})
	}
	for name := range cases { // a case that nothing can fail shows nothing
		if !found[name] {
			t.Errorf("no broken store is found by case %q", name)
		}
	}
}

// An outbox that is not broken passes under the same machinery, and a missing hook is reported.
func TestOutboxSuiteRecorderIsFair(t *testing.T) {
	for _, c := range storeCases[*Tx]() {
		h := memoryHarness(brokenStore{breaks: func(m *Memory, o *Outbox[*Tx]) { o.Queue = &hooks{Memory: m} }})
		if said := record(t, func(t *testing.T, tb testing.TB) { c.run(newEnv(t, tb, h, c)) }); said != "" {
			t.Errorf("case %q of a store that is not broken: %s", c.name, said)
		}
	}
	for name, without := range map[string]func(*Outbox[*Tx]){
		"LockOrderingKey makes transactions of one key exclude each other": func(o *Outbox[*Tx]) { o.LockOrderingKey = nil },
		"confirmed messages are kept for their time":                       func(o *Outbox[*Tx]) { o.Sent = nil },
	} {
		i := slices.IndexFunc(storeCases[*Tx](), func(c storeCase[*Tx]) bool { return c.name == name })
		c := storeCases[*Tx]()[i]
		h := memoryHarness(brokenStore{breaks: func(_ *Memory, o *Outbox[*Tx]) { without(o) }})
		said := record(t, func(t *testing.T, tb testing.TB) { c.run(newEnv(t, tb, h, c)) })
		if !strings.Contains(said, "DoesNotApply") {
			t.Errorf("case %q without its hook: %q", name, said)
		}
	}
}

func TestOutboxFeaturesAreReasons(t *testing.T) {
	for _, tc := range []struct {
		f     Features
		needs need
		want  string
	}{
		{Features{}, nothing, ""},
		{Features{}, lateSequence, "assigned in Enqueue"},
		{Features{LateSequence: true}, lateSequence, ""},
		{Features{LateSequence: true, OneWriter: true}, lateSequence, "one writing transaction"},
		{Features{OneWriter: true}, twoWriters, "one writing transaction"},
		{Features{DoesNotApply: map[string]string{"case": "because"}}, nothing, "because"},
	} {
		if got := tc.f.without("case", tc.needs); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%+v, needs %d: %q, want %q", tc.f, tc.needs, got, tc.want)
		}
	}
}
