package outboxtest

import (
	"context"
	"slices"

	"github.com/txonce/txonce/outbox/driver"
)

// leases breaks Lease.
func leases(lease func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) { o.Queue = &hooks{Memory: m, lease: lease} }
}

// wants changes the Want of each Lease.
func wants(change func(s *session, want *driver.Want)) func(*Memory, *Outbox[*Tx]) {
	return leases(func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
		s.memory.mu.Lock()
		change(s, &want)
		s.memory.mu.Unlock()
		return s.Lease(ctx, want)
	})
}

// settles breaks Settle: change changes each outcome.
func settles(change func(s *session, o *driver.Outcome)) func(*Memory, *Outbox[*Tx]) {
	return func(m *Memory, o *Outbox[*Tx]) {
		o.Queue = &hooks{Memory: m, settle: func(s *session, ctx context.Context, all []driver.Outcome) error {
			m.mu.Lock()
			for i := range all {
				change(s, &all[i])
			}
			m.mu.Unlock()
			return s.Settle(ctx, all)
		}}
	}
}

func brokenLeases() []brokenStore {
	return []brokenStore{
		{name: "leases by a cursor", early: true, found: []string{"a late commit with a lower sequence number is not skipped"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			cursor := int64(0)
			o.Queue = &hooks{Memory: m, lease: func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
				leased, err := s.Lease(ctx, want)
				leased = slices.DeleteFunc(leased, func(l driver.Leased) bool { return l.Seq < cursor })
				for _, l := range leased {
					cursor = max(cursor, l.Seq)
				}
				return leased, err
			}}
		}},
		{
			name: "ignores Limit", found: []string{"Limit bounds a lease"},
			breaks: wants(func(_ *session, w *driver.Want) { w.Limit = many }),
		},
		{
			name: "ignores Bytes", found: []string{"Bytes bounds a lease, and a larger message is leased alone"},
			breaks: wants(func(_ *session, w *driver.Want) { w.Bytes = 0 }),
		},
		{
			name:  "never leases what is larger than Bytes",
			found: []string{"Bytes bounds a lease, and a larger message is leased alone"},
			breaks: leases(func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
				leased, err := s.Lease(ctx, want)
				if len(leased) == 1 && want.Bytes > 0 && size(&row{Leased: leased[0]}) > want.Bytes {
					return nil, err
				}
				return leased, err
			}),
		},
		{
			name: "leases what is leased", found: []string{"a shard with leased messages is left alone until they are settled"},
			breaks: wants(func(s *session, _ *driver.Want) { clear(s.leased) }),
		},
		{
			name:   "frees a shard when one of its messages is settled",
			found:  []string{"a shard with leased messages is left alone until they are settled"},
			breaks: settles(func(s *session, o *driver.Outcome) { delete(s.leased, o.Shard) }),
		},
		{
			name: "leases what its answer does not say", found: []string{"nothing is leased after an error"},
			breaks: leases(func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
				leased, err := s.Lease(context.WithoutCancel(ctx), want)
				if ended := ctx.Err(); ended != nil {
					return nil, ended
				}
				return leased, err
			}),
		},
		{
			name: "ignores Groups", found: []string{"Groups scans one group of shards per call"},
			breaks: wants(func(_ *session, w *driver.Want) { w.Groups = 1 }),
		},
		{
			name:   "always looks at the first part",
			found:  []string{"every pending message is leased in the end, with any Part"},
			breaks: wants(func(s *session, _ *driver.Want) { s.turn = 0 }),
		},
		{
			name: "forgets what was returned", found: []string{"what was returned is due again at once"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Returned {
					o.Verdict = driver.Sent
				}
			}),
		},
		{
			name: "counts what was returned", found: []string{"what was returned is due again at once"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Returned {
					o.Verdict, o.Err = driver.Deferred, errRefused
				}
			}),
		},
		{
			name: "takes shards in Lease", found: []string{"nothing is leased before the first Renew"},
			breaks: leases(func(s *session, ctx context.Context, want driver.Want) ([]driver.Leased, error) {
				if s.renewals == 0 {
					if _, err := s.Renew(ctx); err != nil {
						return nil, err
					}
				}
				return s.Lease(ctx, want)
			}),
		},
		{
			name: "keeps what was confirmed", found: []string{"what was confirmed is not leased again"},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Sent {
					o.Verdict = driver.Returned
				}
			}),
		},
		{
			name: "counts each Settle", found: []string{"settling twice is harmless"},
			breaks: settles(func(s *session, o *driver.Outcome) {
				if r := s.memory.find(o); r != nil {
					o.Attempts = r.Attempts
				}
			}),
		},
		{name: "fails on a message that is gone", found: []string{"settling twice is harmless"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Queue = &hooks{Memory: m, settle: func(s *session, ctx context.Context, all []driver.Outcome) error {
				for _, o := range all {
					if m.find(&o) == nil {
						return driver.ErrLeaseLost
					}
				}
				return s.Settle(ctx, all)
			}}
		}},
	}
}

// find looks for a pending message.
func (m *Memory) find(o *driver.Outcome) *row {
	rows := m.shards[o.Shard].rows
	if at, found := slices.BinarySearchFunc(rows, o.Seq, bySeq); found {
		return rows[at]
	}
	return nil
}
