package outboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// keeps parks under another ParkPolicy.
func keeps(in, out outbox.ParkPolicy) func(*Memory, *Outbox[*Tx]) {
	return settles(func(_ *session, o *driver.Outcome) {
		if o.Verdict == driver.Parked && o.ParkPolicy == in {
			o.ParkPolicy = out
		}
	})
}

// operations breaks Operations.
type operations struct {
	*Memory
	stats   func(st *outbox.Stats)
	parked  func(f *outbox.ParkedFilter)
	unpark  func(seqs []int64) (int, error)
	discard func(seqs []int64) (int, error)
}

func (o *operations) Stats(ctx context.Context) (outbox.Stats, error) {
	st, err := o.Memory.Stats(ctx)
	if o.stats != nil {
		o.stats(&st)
	}
	return st, err
}

func (o *operations) Parked(ctx context.Context, f outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	if o.parked != nil {
		o.parked(&f)
	}
	return o.Memory.Parked(ctx, f)
}

func (o *operations) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	if o.unpark != nil {
		return o.unpark(seqs)
	}
	return o.Memory.Unpark(ctx, seqs...)
}

func (o *operations) Discard(ctx context.Context, seqs ...int64) (int, error) {
	if o.discard != nil {
		return o.discard(seqs)
	}
	return o.Memory.Discard(ctx, seqs...)
}

// releases breaks Unpark and Discard together.
func releases(m *Memory, o *Outbox[*Tx], then func(seqs []int64)) {
	ctx := context.Background()
	o.Operations = &operations{
		Memory:  m,
		unpark:  func(seqs []int64) (int, error) { n, err := m.Unpark(ctx, seqs...); then(seqs); return n, err },
		discard: func(seqs []int64) (int, error) { n, err := m.Discard(ctx, seqs...); then(seqs); return n, err },
	}
}

func brokenParkings() []brokenStore {
	const (
		waitUnpark  = "BlockKey: they wait, and go on by themselves when it is unparked"
		waitDiscard = "BlockKey: they go on by themselves when it is discarded"
		park        = "ParkKey: they are parked, and each needs a decision"
		pass        = "SkipMessage: they pass"
	)
	return []brokenStore{
		{
			name: "drops what is parked", found: []string{
				waitUnpark, waitDiscard, park, pass,
				"parking and unparking keep every field", "an error that has no text parks its message",
			},
			breaks: settles(func(_ *session, o *driver.Outcome) {
				if o.Verdict == driver.Parked {
					o.Verdict = driver.Sent
				}
			}),
		},
		{
			name:   "lets followers pass that were to wait",
			found:  []string{waitUnpark, waitDiscard, "a parked key waits for a person, whichever sessions come and go"},
			breaks: keeps(outbox.BlockKey, outbox.SkipMessage),
		},
		{
			name: "lets followers wait that were to be parked", found: []string{park},
			breaks: keeps(outbox.ParkKey, outbox.BlockKey),
		},
		{
			name: "lets followers pass that were to be parked", found: []string{park},
			breaks: keeps(outbox.ParkKey, outbox.SkipMessage),
		},
		{name: "lets followers wait that were to pass", found: []string{pass}, breaks: keeps(outbox.SkipMessage,
			outbox.BlockKey)},
		{
			name: "holds back what has no key", found: []string{"a parked message without key holds back nothing"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				err := s.Settle(ctx, all)
				for _, o := range all {
					if o.Verdict == driver.Parked && o.OrderingKey == "" && err == nil {
						for i := range s.memory.shards {
							for _, r := range s.memory.shards[i].rows {
								if r.OrderingKey == "" {
									r.retryAt = time.Now().Add(time.Hour)
								}
							}
						}
					}
				}
				return err
			}),
		},
		{name: "followers stay when it is unparked", found: []string{waitUnpark, waitDiscard}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Operations = &operations{Memory: m, unpark: m.only(true), discard: m.only(false)}
		}},
		{name: "one of two that are parked lets the key go on", found: []string{"two parked messages of one key"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			releases(m, o, func([]int64) {
				m.mu.Lock()
				defer m.mu.Unlock()
				for seq, r := range m.parked {
					if r.waiting {
						delete(m.parked, seq)
						r.back()
						m.insert(r)
					}
				}
				for i := range m.shards {
					clear(m.shards[i].holds)
				}
			})
		}},
		{
			name: "two that are parked are one and its follower", found: []string{"two parked messages of one key"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				for i := range all {
					for j := range all {
						if all[j].Verdict == driver.Parked && all[i].Verdict == driver.Parked &&
							all[j].OrderingKey == all[i].OrderingKey && all[j].Seq < all[i].Seq {
							all[i].Verdict = driver.Returned
						}
					}
				}
				return s.Settle(ctx, all)
			}),
		},
		{
			name: "parks what was confirmed", found: []string{"a confirmed message is not parked behind another one"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				for _, o := range all {
					if o.Verdict == driver.Parked {
						if err := s.Settle(ctx, []driver.Outcome{o}); err != nil {
							return err
						}
					}
				}
				return s.Settle(ctx, all)
			}),
		},
		{
			name:  "one hold for each key, the longest",
			found: []string{"a deferred message is not held for ever by a parked one behind it"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				err := s.Settle(ctx, all)
				for i := range s.memory.shards {
					for _, holds := range s.memory.shards[i].holds {
						for j := range holds {
							if slices.ContainsFunc(holds, func(h hold) bool { return h.until.IsZero() }) &&
								!holds[j].until.IsZero() {
								holds[j].until = time.Now().Add(1000 * time.Hour)
							}
						}
					}
				}
				return err
			}),
		},
		{
			name:  "one hold for each key, that of the parked message",
			found: []string{"a message between a deferred one and a parked one of its key waits"},
			breaks: settling(func(s *session, ctx context.Context, all []driver.Outcome) error {
				err := s.Settle(ctx, all)
				for i := range s.memory.shards {
					sh := &s.memory.shards[i]
					for key, holds := range sh.holds {
						if !slices.ContainsFunc(holds, func(h hold) bool { return h.until.IsZero() }) {
							continue
						}
						sh.holds[key] = slices.DeleteFunc(holds, func(h hold) bool {
							for _, r := range sh.rows {
								if r.Seq == h.from && !h.until.IsZero() {
									r.retryAt = h.until // it waits alone
								}
							}
							return !h.until.IsZero()
						})
					}
				}
				return err
			}),
		},
		{name: "the session that parked knows it", found: []string{"a parked key waits for a person, whichever sessions come and go"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Queue = &hooks{Memory: m, close: func(s *session, ctx context.Context) error {
				for i := range m.shards {
					clear(m.shards[i].holds)
				}
				return s.Close(ctx)
			}}
		}},
		{name: "unparks to the end of the key", found: []string{waitUnpark, pass, "parking and unparking keep every field"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			releases(m, o, func(seqs []int64) {
				m.mu.Lock()
				defer m.mu.Unlock()
				for i := range m.shards {
					for _, r := range slices.Clone(m.shards[i].rows) {
						if slices.Contains(seqs, r.Seq) {
							m.shards[i].rows = slices.DeleteFunc(m.shards[i].rows,
								func(other *row) bool { return other == r })
							r.Seq = m.next()
							m.insert(r)
						}
					}
				}
			})
		}},
		{name: "Unpark keeps the attempts", found: []string{"unparking begins with no attempts counted"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			releases(m, o, func(seqs []int64) {
				for i := range m.shards {
					for _, r := range m.shards[i].rows {
						if slices.Contains(seqs, r.Seq) {
							r.Attempts = 3
						}
					}
				}
			})
		}},
		{name: "counts what it was given", found: []string{"Unpark and Discard count only what was parked"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Operations = &operations{Memory: m, unpark: func(seqs []int64) (int, error) {
				_, err := m.Unpark(context.Background(), seqs...)
				return len(seqs), err
			}}
		}},
		{name: "Discard deletes what is pending", found: []string{"Unpark and Discard count only what was parked"}, breaks: func(m *Memory, o *Outbox[*Tx]) {
			o.Operations = &operations{Memory: m, discard: func(seqs []int64) (int, error) {
				for i := range m.shards {
					m.shards[i].rows = slices.DeleteFunc(m.shards[i].rows,
						func(r *row) bool { return slices.Contains(seqs, r.Seq) })
				}
				return m.Discard(context.Background(), seqs...)
			}}
		}},
	}
}

// only takes messages out of the parking lot and leaves everything else of their keys as it is.
func (m *Memory) only(back bool) func(seqs []int64) (int, error) {
	return func(seqs []int64) (n int, err error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, seq := range seqs {
			r := m.parked[seq]
			if r == nil {
				continue
			}
			n++
			delete(m.parked, seq)
			if back {
				m.shards[r.Shard].holds[r.OrderingKey] = []hold{{from: seq + 1}}
				r.back()
				m.insert(r)
			}
		}
		return n, nil
	}
}
