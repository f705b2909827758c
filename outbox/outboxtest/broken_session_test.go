package outboxtest

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// renews breaks Renew.
func renews(renew func(s *session, ctx context.Context) (driver.Hold, error)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) { o.Queue = &hooks{Memory: m, renew: renew} }
}

// told changes the result of Renew.
func told(change func(h *driver.Hold)) func(*Memory, *Outbox[*Tx]) {
	return renews(func(s *session, ctx context.Context) (driver.Hold, error) {
		hold, err := s.Renew(ctx)
		change(&hold)
		return hold, err
	})
}

func brokenSessions() []brokenStore {
	return []brokenStore{
		{name: "gives one shard to two sessions", found: []string{
			"sessions share the shards, and never hold one together", "the shards of a living session are left alone",
			"sessions that work at once lease each message once",
			"two relays publish no message twice while both are healthy",
			"a relay that stops leaves its work to the other, and nothing is published twice",
		}, breaks: stealing},
		{name: "never gives back", found: []string{
			"sessions share the shards, and never hold one together",
			"a session above its share gives back what has nothing leased, and only that",
		}, breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
			hold, err := s.Renew(ctx)
			if err == nil {
				s.memory.mu.Lock()
				defer s.memory.mu.Unlock()
				clear(s.leaving)
				hold.Shards = 0
				for i := range s.memory.shards {
					if sh := &s.memory.shards[i]; sh.owner == nil || sh.owner == s {
						sh.owner = s
						hold.Shards++
					}
				}
			}
			return hold, err
		})},
		{
			name: "gives back what is leased", found: []string{"a session above its share gives back what has nothing leased, and only that"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				s.memory.mu.Lock()
				clear(s.leased)
				s.memory.mu.Unlock()
				return s.Renew(ctx)
			}),
		},
		{
			name:  "gives up shards for whoever asks once",
			found: []string{"nobody gives up a shard for a session that has asked once"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				hold, err := s.Renew(ctx)
				s.memory.mu.Lock()
				defer s.memory.mu.Unlock()
				hold.Shards -= s.giveBack(max(0, hold.Shards-(hold.TotalShards+hold.Relays-1)/max(hold.Relays, 1)))
				return hold, err
			}),
		},
		{
			name:  "goes on leasing what others wait for",
			found: []string{"a session that joins a busy one has its share after three Renews"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				hold, err := s.Renew(ctx)
				s.memory.mu.Lock()
				defer s.memory.mu.Unlock()
				clear(s.leaving)
				return hold, err
			}),
		},
		{
			name: "leaves free what others do not take", found: []string{"what stays free is taken"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				s.memory.mu.Lock()
				kept := s.memory.shards[0].owner == s
				s.memory.mu.Unlock()
				hold, err := s.Renew(ctx)
				s.memory.mu.Lock()
				defer s.memory.mu.Unlock()
				if fair := (hold.TotalShards + hold.Relays - 1) / max(hold.Relays, 1); kept && hold.Relays > 1 &&
					hold.Shards > fair && s.renewals > 2 {
					hold.Shards -= s.giveBack(hold.Shards - fair)
				}
				return hold, err
			}),
		},
		{name: "Close keeps everything until the hold ends", found: []string{"Close gives back at once"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Queue = &hooks{Memory: m, close: func(*session, context.Context) error { return nil }}
		}},
		{
			name:  "the first Renew is the only one that counts",
			found: []string{"a session that renews keeps what it holds"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				until := s.memory.relays[s]
				hold, err := s.Renew(ctx)
				if _, alive := s.memory.relays[s]; alive && !until.IsZero() {
					s.memory.relays[s] = until
				}
				return hold, err
			}),
		},
		{
			name: "holds do not end", found: []string{
				"when a hold has run out its messages are handed over",
				"Renew after the end of the hold is ErrLeaseLost",
			},
			breaks: func(m *Memory, o *Outbox[*Tx]) { o.Queue = lasting{&hooks{Memory: m}} },
		},
		{
			name: "a takeover keeps the token", found: []string{"when a hold has run out its messages are handed over"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				hold, err := s.Renew(ctx)
				for i := range s.memory.shards {
					s.memory.shards[i].token = 1
				}
				return hold, err
			}),
		},
		{
			name: "takes over nothing", found: []string{"when a hold has run out its messages are handed over"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				for i := range s.memory.shards {
					if sh := &s.memory.shards[i]; sh.owner != nil && sh.owner != s &&
						s.memory.relays[sh.owner].Before(time.Now()) {
						sh.owner.opts.TTL = time.Hour
						s.memory.relays[sh.owner] = time.Now().Add(time.Hour)
					}
				}
				return s.Renew(ctx)
			}),
		},
		{
			name:  "keeps a hold that was set before the clock was set back",
			found: []string{"the hold of a dead session ends although the clock was set back"},
			breaks: setsBack(func(m *Memory) {
				for s := range m.relays {
					s.opts.TTL += time.Hour
				}
			}),
		},
		{
			name:  "ends a hold that was set before the clock was set back",
			found: []string{"a living session keeps its hold when the clock is set back"},
			breaks: setsBack(func(m *Memory) {
				for s := range m.relays {
					m.relays[s] = time.Now()
				}
			}),
		},
		{
			name:  "keeps retries that were set before the clock was set back",
			found: []string{"a deferred message is due when the clock was set back behind its failure"},
			breaks: setsBack(func(m *Memory) {
				for i := range m.shards {
					for _, holds := range m.shards[i].holds {
						for j := range holds {
							holds[j].setAt = time.Time{}
						}
					}
					for _, r := range m.shards[i].rows {
						r.failedAt = time.Time{}
					}
				}
			}),
		},
		{
			name: "revives a hold that nobody took", found: []string{"Renew after the end of the hold is ErrLeaseLost"},
			breaks: renews(func(s *session, ctx context.Context) (driver.Hold, error) {
				if _, there := s.memory.relays[s]; there {
					s.memory.relays[s] = time.Now().Add(s.opts.TTL)
				}
				return s.Renew(ctx)
			}),
		},
		{name: "renews what was taken over", found: []string{"a Renew that races a takeover: one of them wins", "Renew after the end of the hold is ErrLeaseLost"}, breaks: greedy},
		{name: "Until is half of it", found: []string{"Hold says until when, how much, and who else"}, breaks: told(func(h *driver.Hold) {
			h.Until = time.Now().Add(time.Until(h.Until) / 2)
		})},
		{name: "Until is too late", found: []string{"Hold says until when, how much, and who else"}, breaks: told(func(h *driver.Hold) {
			h.Until = h.Until.Add(time.Second)
		})},
		{
			name: "does not count relays", found: []string{"Hold says until when, how much, and who else"},
			breaks: told(func(h *driver.Hold) { h.Relays = 1 }),
		},
		{
			name: "counts itself as a namesake", found: []string{"Hold says until when, how much, and who else"},
			breaks: told(func(h *driver.Hold) { h.SameName++ }),
		},
	}
}

// stealing takes the shards of others, each time all.
func stealing(m *Memory, o *Outbox[*Tx]) {
	o.Queue = &hooks{Memory: m, renew: func(s *session, ctx context.Context) (driver.Hold, error) {
		hold, err := s.Renew(ctx)
		hold.Shards = hold.TotalShards
		return hold, err
	}, lease: func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
		m.mu.Lock()
		for i := range m.shards {
			if s.renewals > 0 && m.shards[i].owner != s {
				m.shards[i].owner = s
			}
		}
		m.mu.Unlock()
		return s.Lease(ctx, want)
	}, settle: unfenced}
}

// greedy has a Renew that never fails and takes everything.
func greedy(m *Memory, o *Outbox[*Tx]) {
	o.Queue = &hooks{Memory: m, renew: func(s *session, ctx context.Context) (driver.Hold, error) {
		hold, err := s.Renew(ctx)
		if !errors.Is(err, driver.ErrLeaseLost) {
			return hold, err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		s.over = false
		m.relays[s] = time.Now().Add(s.opts.TTL)
		for i := range m.shards {
			m.shards[i].owner = s
		}
		n := len(m.shards)
		return driver.Hold{Until: m.relays[s], Shards: n, TotalShards: n, Relays: 1}, nil
	}}
}

// lasting opens sessions for an hour.
type lasting struct{ *hooks }

func (l lasting) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	opts.TTL += time.Hour
	return l.hooks.Open(ctx, opts)
}

// setsBack changes the outbox after each SetBack.
func setsBack(change func(m *Memory)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) {
		o.SetBack = func(ctx context.Context, d time.Duration) error {
			err := m.SetBack(ctx, d)
			m.mu.Lock()
			defer m.mu.Unlock()
			change(m)
			return err
		}
	}
}
