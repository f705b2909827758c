package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// says breaks Stats.
func says(change func(st *outbox.Stats)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) { o.Operations = &operations{Memory: m, stats: change} }
}

// tidies breaks Maintain.
func tidies(tidy func(m *Memory)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) {
		o.Queue = &hooks{Memory: m, tidy: func(s *session, ctx context.Context) error {
			err := s.Maintain(ctx)
			m.mu.Lock()
			defer m.mu.Unlock()
			tidy(m)
			return err
		}}
	}
}

func brokenUpkeep() []brokenStore {
	const (
		tidy  = "upkeep never touches what was not confirmed"
		later = "a not-before time holds back nobody, and then joins the end of its key"
	)
	aged := func(r *row) bool { return time.Since(r.Enqueued) > 50*time.Millisecond }
	return []brokenStore{
		{
			name: "ignores NotBefore", found: []string{later, "not-before times of one key come in their order"},
			breaks: altered(func(m *outbox.Message) { m.NotBefore = time.Time{} }),
		},
		{name: "comes later in its old place", early: true, found: []string{"not-before times of one key come in their order"}, breaks: oldPlace},
		{name: "what comes later holds back its key", found: []string{later}, breaks: leases(func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
			leased, err := s.Lease(ctx, want)
			return slices.DeleteFunc(leased, func(l driver.Leased) bool {
				held := slices.ContainsFunc(s.memory.delayed,
					func(r *row) bool { return r.OrderingKey == l.OrderingKey })
				if held {
					_ = s.Settle(ctx, []driver.Outcome{{Leased: l}})
				}
				return held
			}), err
		})},
		{name: "rounds up to seconds", found: []string{"not-before times of one key come in their order"}, breaks: altered(func(m *outbox.Message) {
			if !m.NotBefore.IsZero() {
				m.NotBefore = m.NotBefore.Truncate(time.Second).Add(time.Second)
			}
		})},
		{name: "a time that has passed is a day", found: []string{"a not-before time that has passed is none"}, breaks: altered(func(m *outbox.Message) {
			if !m.NotBefore.IsZero() && m.NotBefore.Before(time.Now()) {
				m.NotBefore = time.Now().Add(24 * time.Hour)
			}
		})},
		{name: "forgets old parked messages", found: []string{tidy}, breaks: tidies(func(m *Memory) {
			for seq, r := range m.parked {
				if aged(r) {
					delete(m.parked, seq)
				}
			}
		})},
		{name: "forgets old pending messages", found: []string{tidy}, breaks: tidies(func(m *Memory) {
			for i := range m.shards {
				m.shards[i].rows = slices.DeleteFunc(m.shards[i].rows, aged)
			}
		})},
		{name: "forgets messages that come much later", found: []string{tidy}, breaks: tidies(func(m *Memory) {
			m.delayed = slices.DeleteFunc(m.delayed, aged)
		})},
		{name: "forgets which keys are held", found: []string{tidy}, breaks: tidies(func(m *Memory) {
			for i := range m.shards {
				clear(m.shards[i].holds)
			}
		})},
		{
			name: "keeps what nobody wants", found: []string{"confirmed messages are deleted at once by default"},
			breaks: func(m *Memory, _ *Outbox[*Tx]) { m.KeepSent = max(m.KeepSent, time.Minute) },
		},
		{
			name: "keeps nothing", found: []string{"confirmed messages are kept for their time"},
			breaks: func(m *Memory, _ *Outbox[*Tx]) { m.KeepSent = 0 },
		},
		{
			name: "keeps for ever", found: []string{"kept messages are forgotten after their time"},
			breaks: func(m *Memory, _ *Outbox[*Tx]) { m.KeepSent = 1000 * time.Hour },
		},
		{name: "Stats of an empty outbox have an oldest message", found: []string{"Stats of an empty outbox"}, breaks: says(func(st *outbox.Stats) {
			st.PendingAge = max(st.PendingAge, 1)
		})},
		{name: "Stats count parked ones as pending", found: []string{"Stats count what there is, by topic", waitUnparked}, breaks: says(func(st *outbox.Stats) { st.Pending += st.Parked })},
		{
			name: "Stats count waiting ones as parked", found: []string{"Stats count what there is, by topic"},
			breaks: says(func(st *outbox.Stats) { st.Parked += st.Waiting }),
		},
		{
			name: "Stats do not see topics", found: []string{"Stats count what there is, by topic"},
			breaks: says(func(st *outbox.Stats) { clear(st.Topics) }),
		},
		{
			name: "Stats do not see held keys", found: []string{"Stats count what there is, by topic"},
			breaks: says(func(st *outbox.Stats) { st.HeldKeys = 0 }),
		},
		{
			name: "Stats do not see what comes later", found: []string{later, "Stats count what there is, by topic"},
			breaks: says(func(st *outbox.Stats) { st.Delayed = 0 }),
		},
		{name: "the first due is the last", found: []string{"Stats tell how long messages have been due, by topic"}, breaks: says(func(st *outbox.Stats) {
			st.PendingAge = min(st.PendingAge, 1)
		})},
		{
			name: "what is parked is not late", found: []string{"Stats tell how long messages have been due, by topic"},
			breaks: says(func(st *outbox.Stats) { st.ParkedAge = 0 }),
		},
		{name: "what comes later is due since it was enqueued", found: []string{"Stats count what comes later as due since its not-before time"}, breaks: says(func(st *outbox.Stats) {
			if st.Pending > 0 {
				st.PendingAge += time.Hour
			}
		})},
		{
			name: "Stats leave out what moves", found: []string{"Stats leave nothing out while messages move"},
			breaks: says(func(st *outbox.Stats) { st.Pending = 0 }),
		},
		{name: "filters know no cause", found: []string{"UnparkAll and DiscardAll by filter"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Operations = &operations{Memory: m, parked: func(f *outbox.ParkedFilter) { f.Error = "" }}
		}},
		{name: "Discard lets go first what waits", found: []string{"DiscardAll of a key deletes what waits with it"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Operations = &operations{Memory: m, discard: func(seqs []int64) (n int, err error) {
				slices.Sort(seqs)
				for _, seq := range seqs {
					d, err := m.Discard(context.Background(), seq)
					if n += d; err != nil {
						return n, err
					}
				}
				return n, nil
			}}
		}},
		{name: "Stats name dead relays", found: []string{"Stats name the relays"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			seen := map[string]outbox.RelayStats{}
			o.Operations = &operations{Memory: m, stats: func(st *outbox.Stats) {
				for _, r := range st.Relays {
					seen[r.Name] = r
				}
				st.Relays = nil
				for _, r := range seen {
					st.Relays = append(st.Relays, r)
				}
			}}
		}},
		{name: "Stats do not count the shards of relays", found: []string{"Stats name the relays"}, breaks: says(func(st *outbox.Stats) {
			for i := range st.Relays {
				st.Relays[i].Shards = 0
			}
		})},
		{
			name: "Parked ignores topics", found: []string{"Parked pages by sequence number, and filters"},
			breaks: lists(func(f *outbox.ParkedFilter) { f.Topic = "" }),
		},
		{
			name: "Parked ignores keys", found: []string{"Parked pages by sequence number, and filters"},
			breaks: lists(func(f *outbox.ParkedFilter) { f.OrderingKey = "" }),
		},
		{
			name: "Parked has no bound", found: []string{"Parked pages by sequence number, and filters"},
			breaks: lists(func(f *outbox.ParkedFilter) { f.Limit = many }),
		},
		{
			name: "Parked begins behind the next", found: []string{"Parked pages by sequence number, and filters"},
			breaks: lists(func(f *outbox.ParkedFilter) { f.After++ }),
		},
		{name: "wakes nobody", found: []string{"a commit wakes the sessions"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Queue = &hooks{Memory: m, wake: make(chan struct{})}
		}},
		{name: "forgets the wake-ups about leased shards", found: []string{"a poll after a notification misses no message"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Queue = &hooks{Memory: m, lease: func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
				defer func() {
					if want.Notified {
						m.mu.Lock()
						defer m.mu.Unlock()
						clear(s.told)
					}
				}()
				return s.Lease(ctx, want)
			}}
		}},
	}
}

const waitUnparked = "BlockKey: they wait, and go on by themselves when it is unparked"

func lists(change func(f *outbox.ParkedFilter)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) { o.Operations = &operations{Memory: m, parked: change} }
}

// oldPlace gives a message that becomes due the sequence number that it had when it was enqueued.
func oldPlace(m *Memory, o *Outbox[*Tx]) {
	old := map[string]int64{}
	o.Queue = &hooks{Memory: m, lease: func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
		m.mu.Lock()
		for _, r := range m.delayed {
			old[r.ID] = r.Seq
		}
		for i := range m.shards {
			for _, r := range m.shards[i].rows {
				if !r.NotBefore.IsZero() {
					r.Seq = old[r.ID]
				}
			}
			slices.SortFunc(m.shards[i].rows, func(a, b *row) int { return int(a.Seq - b.Seq) })
		}
		m.mu.Unlock()
		return s.Lease(ctx, want)
	}}
	o.Operations = &operations{Memory: m, stats: func(*outbox.Stats) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, r := range m.delayed {
			old[r.ID] = r.Seq
		}
	}}
}
