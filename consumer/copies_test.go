package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

const copies = 500

// Many copies of one bad message are one letter: they spend one token, and strangers do not wait.
func TestCopiesOfOneBadMessageHoldUpNoStranger(t *testing.T) {
	garbled := errors.New("garbled")
	for name, bad := range map[string]func(i int) *consumer.Message{
		"poison": func(int) *consumer.Message { return msg("bad", "poison") },
		"poison at other positions": func(i int) *consumer.Message {
			m := msg("bad", "poison")
			m.Position = fmt.Sprint("orders/1/", i)
			return m
		},
		"a mismatch": func(int) *consumer.Message { return msg("known", "other") },
		"known content": func(int) *consumer.Message {
			m := msg("new", "known")
			m.Aliases = []string{"alias"}
			return m
		},
		"no key": func(int) *consumer.Message { return msg("", "a") },
		"no key, at other positions": func(i int) *consumer.Message {
			m := msg("", "a")
			m.Position = fmt.Sprint("orders/1/", i)
			return m
		},
		"unreadable": func(i int) *consumer.Message {
			m := msg("bad", "a")
			m.Malformed = garbled
			return m
		},
	} {
		for _, batched := range []bool{true, false} {
			t.Run(fmt.Sprint(name, "/batched ", batched), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := consumertest.NewStore()
					known := msg("known", "known")
					known.Aliases = []string{"alias"}
					process(t, newConsumer(t, config{Store: consumertest.NewStoreOn(store.Database())}), known)
					c := newConsumer(t, config{Store: store, Handle: poison, ParkLimit: consumer.ParkLimit{Burst: 2, PerMinute: 1}})
					process(t, c, bad(0))
					ctx, cancel := context.WithCancel(t.Context())
					var all sync.WaitGroup
					for i := range copies {
						if batched && i%10 == 0 {
							var batch []*consumer.Message
							for j := range 10 {
								batch = append(batch, bad(i+j))
							}
							c.ProcessBatch(ctx, batch)
						}
						if !batched {
							all.Go(func() { _ = c.Process(ctx, bad(i)) })
						}
						if i%50 == 0 {
							began := time.Now()
							process(t, c, msg(fmt.Sprint("stranger ", i), "good"))
							if took := time.Since(began); took > 0 {
								t.Fatalf("a stranger beside copy %d waited %v", i, took)
							}
						}
					}
					synctest.Wait()
					cancel()
					all.Wait()
				})
			})
		}
	}
}

// A letter that stands costs no token, even if another process has written it and no token is left.
func TestAStandingLetterCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		first := newConsumer(t, config{Store: store, Handle: poison, ParkLimit: consumer.ParkLimit{Unlimited: true}})
		for i := range 20 {
			process(t, first, msg(fmt.Sprint(i), "poison"))
		}
		c := newConsumer(t, config{
			Store: consumertest.NewStoreOn(store.Database()), Handle: poison,
			ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 1},
		})
		began := time.Now()
		for i := range 20 {
			process(t, c, msg(fmt.Sprint(i), "poison"))
		}
		process(t, c, msg("new", "poison")) // the only token
		if took := time.Since(began); took > 0 {
			t.Errorf("they took %v", took)
		}
		if err := c.ProcessBatch(t.Context(), []*consumer.Message{msg("newer", "poison")})[0]; !errors.Is(err,
			consumer.ErrParkLimit) {
			t.Errorf("a new letter without a token: %v", err)
		}
		if n := len(letters(t, c)); n != 21 {
			t.Errorf("%d letters, want 21", n)
		}
	})
}

// Copies that wait for one that is parked are parked with it, if they are the same message. None is acknowledged
// without a committed letter.
func TestWaitingCopiesShareALetter(t *testing.T) {
	header := func(m *consumer.Message) { m.Headers = map[string]string{"kind": "other"} }
	for _, tc := range []struct {
		name   string
		change func(m *consumer.Message)
		faults int
		runs   int64
	}{
		{"copies", func(*consumer.Message) {}, 0, 1},
		{"another position", func(m *consumer.Message) { m.Position = "elsewhere" }, 0, 1},
		{"another header", header, 0, 2},
		{"other content", func(m *consumer.Message) { m.Payload = []byte("poison too") }, 0, 2},
		{"another alias", func(m *consumer.Message) { m.Aliases = []string{"alias"} }, 0, 2},
		{"the letter is not committed at first", func(*consumer.Message) {}, 1, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var runs, faults atomic.Int64
				store := &unparkable{Store: consumertest.NewStore(), faults: &faults}
				faults.Store(int64(tc.faults))
				c := newConsumer(t, config{Store: store, Backoff: func(int) time.Duration { return time.Hour }, Handle: func(context.Context, tx, *consumer.Message) error {
					runs.Add(1)
					<-time.After(time.Second)
					return errPoison
				}})
				var all sync.WaitGroup
				all.Go(func() {
					err := c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "poison")})[0]
					if (err == nil) != (tc.faults == 0) {
						t.Errorf("the first copy: %v", err)
					}
				})
				synctest.Wait()
				for range 10 {
					m := msg("1", "poison")
					tc.change(m)
					all.Go(func() {
						if err := c.Process(t.Context(), m); err != nil || len(letters(t, c)) == 0 {
							t.Errorf("a copy: %v, with %d letters", err, len(letters(t, c)))
						}
					})
				}
				all.Wait()
				if n := runs.Load(); n < tc.runs || n > tc.runs && tc.name != "another alias" {
					// those wait for the alias first, and share nothing
					t.Errorf("%d handlers ran, want %d", n, tc.runs)
				}
			})
		})
	}
}

// unparkable is a store that fails to park some times.
type unparkable struct {
	*consumertest.Store
	faults *atomic.Int64
}

func (u *unparkable) Park(ctx context.Context, tx tx, letter consumer.DeadLetter) error {
	if u.faults.Add(-1) >= 0 {
		return tx.Fail(errFault)
	}
	return u.Store.Park(ctx, tx, letter)
}

func (u *unparkable) Retryable(err error) bool {
	return errors.Is(err, errFault) || u.Store.Retryable(err)
}
