package outboxtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// settling breaks Settle as a whole.
func settling(settle func(s *session, ctx context.Context, all []driver.Outcome) error) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) { o.Queue = &hooks{Memory: m, settle: settle} }
}

// unfenced settles whatever it gets.
func unfenced(s *session, _ context.Context, all []driver.Outcome) error {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range all {
		m.settle(o, time.Now())
		delete(s.leased[o.Shard], o.Seq)
	}
	for _, o := range all {
		m.follow(o.Shard, time.Now())
	}
	return nil
}

func brokenFences() []brokenStore {
	late := func(verdicts ...string) (names []string) {
		for _, v := range verdicts {
			names = append(names, "a late "+v+" changes nothing, and is ErrLeaseLost")
		}
		return names
	}
	all := slices.Clip(late("Sent", "Returned", "Deferred", "Parked"))
	return []brokenStore{
		{
			name: "ignores owner and token", found: append(all,
				"only the session that holds a shard settles its messages", "a closed session settles nothing",
				"one stale token among many: nothing is changed"),
			breaks: settling(unfenced),
		},
		{
			name: "ignores tokens", found: []string{"one stale token among many: nothing is changed"},
			breaks: settles(func(s *session, o *driver.Outcome) { o.Token = s.memory.shards[o.Shard].token }),
		},
		{
			name: "ignores the owner", found: []string{
				"only the session that holds a shard settles its messages",
				"a closed session settles nothing",
			},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				for _, o := range all {
					if s.memory.shards[o.Shard].token != o.Token {
						return driver.ErrLeaseLost
					}
				}
				return unfenced(s, ctx, all)
			}),
		},
		{
			name: "says nothing of stale tokens", found: append(all, "one stale token among many: nothing is changed"),
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				if err := s.Settle(ctx, all); err != nil && !errors.Is(err, driver.ErrLeaseLost) {
					return err
				}
				return nil
			}),
		},
		{
			name: "settles message by message", found: []string{"one stale token among many: nothing is changed"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) (err error) {
				for _, o := range all {
					err = errors.Join(err, s.Settle(ctx, []driver.Outcome{o}))
				}
				return err
			}),
		},
		{
			name:  "refuses a late Settle after half of it",
			found: []string{"a completion that races a takeover happens wholly or not at all"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				s.memory.mu.Lock()
				late := !s.memory.relays[s].After(time.Now())
				s.memory.mu.Unlock()
				if late && len(all) > 1 {
					_ = unfenced(s, ctx, all[:len(all)/2])
					return driver.ErrLeaseLost
				}
				return s.Settle(ctx, all)
			}),
		},
		{
			name:  "a Deferred holds back nothing",
			found: []string{"a deferred message holds back its key from itself on, and nothing else"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Deferred {
					o.Delay = 0
				}
			}),
		},
		{
			name: "a Deferred is forgotten", found: []string{"a deferred message is due after its delay, and its key goes on in order"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Deferred {
					o.Verdict = driver.Sent
				}
			}),
		},
		{
			name: "a Deferred comes back early", found: []string{"a deferred message is due after its delay, and its key goes on in order"},
			breaks: settles(func(_ *session, o *driver.Outcome) { o.Delay /= 2 }),
		},
		{
			name:   "a Deferred holds back what is before it",
			found:  []string{"a deferred message holds back its key from itself on, and nothing else"},
			breaks: holding(func(h *hold) { h.from = 0 }),
		},
		{
			name:   "a Deferred lets its followers pass",
			found:  []string{"a deferred message is due after its delay, and its key goes on in order"},
			breaks: deferRow,
		},
		{
			name:  "a Deferred without key holds back all of those",
			found: []string{"a deferred message without key holds back nothing"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				err := s.Settle(ctx, all)
				for _, o := range all {
					if o.Verdict == driver.Deferred && o.OrderingKey == "" && err == nil {
						for i := range s.memory.shards {
							for _, r := range s.memory.shards[i].rows {
								r.retryAt = time.Now().Add(o.Delay)
							}
						}
					}
				}
				return err
			}),
		},
		{
			name:  "the last Deferred of a key counts",
			found: []string{"two deferred messages of one key keep their order"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				err := s.Settle(ctx, all)
				for i := range s.memory.shards {
					for key, holds := range s.memory.shards[i].holds {
						s.memory.shards[i].holds[key] = holds[len(holds)-1:]
					}
				}
				return err
			}),
		},
		{
			name: "counts what is uncounted", found: []string{"an uncounted failure is not counted"},
			breaks: settles(func(_ *session, o *driver.Outcome) { o.BrokerFault = false }),
		},
		{
			name: "counts nothing", found: []string{
				"an uncounted failure is not counted",
				"attempts survive a takeover",
			},
			breaks: settles(func(_ *session, o *driver.Outcome) { o.BrokerFault = true }),
		},
		{name: "counts in memory", found: []string{"attempts survive a takeover"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Queue = &hooks{Memory: m, close: func(s *session, ctx context.Context) error {
				for i := range m.shards {
					for _, r := range m.shards[i].rows {
						r.Attempts = 0
					}
				}
				return s.Close(ctx)
			}}
		}},
		{
			name:  "loses a message with each answer that is lost",
			found: []string{"nothing is lost and nothing passes, whatever fails"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				for i := range all {
					if all[i].Verdict == driver.Deferred {
						all[i].Verdict = driver.Sent
					}
				}
				return s.Settle(ctx, all)
			}),
		},
	}
}

// holding changes the holds of keys after each Settle.
func holding(change func(h *hold)) func(*Memory, *Outbox[*Tx]) {
	return settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
		err := s.Settle(ctx, all)
		s.memory.mu.Lock()
		defer s.memory.mu.Unlock()
		for i := range s.memory.shards {
			for _, holds := range s.memory.shards[i].holds {
				for j := range holds {
					change(&holds[j])
				}
			}
		}
		return err
	})
}

// deferRow holds back the row alone.
func deferRow(m *Memory, o *Outbox[*Tx]) {
	retry := map[int64]time.Time{}
	o.Queue = &hooks{Memory: m, settle: func(s *session, ctx context.Context, all []driver.Outcome) error {
		for i := range all {
			if all[i].Verdict == driver.Deferred {
				retry[all[i].Seq] = time.Now().Add(all[i].Delay)
				all[i].Delay = 0
			}
		}
		return s.Settle(ctx, all)
	}, lease: func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
		leased, err := s.Lease(ctx, want)
		var due []driver.Leased
		for _, l := range leased {
			if retry[l.Seq].After(time.Now()) {
				err = errors.Join(err, s.Settle(ctx, []driver.Outcome{{Leased: l}}))
			} else {
				due = append(due, l)
			}
		}
		return due, err
	}}
}
