package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/observe"
)

// redeliver is a broker that delivers msgs again, in batches and after the delays that it is asked for, until all are
// acknowledged or d has passed.
func redeliver(ctx context.Context, c *consumer.Consumer[tx], msgs []*consumer.Message, batch int,
	d time.Duration,
) (left []*consumer.Message) {
	end := time.Now().Add(d)
	due := make(map[*consumer.Message]time.Time, len(msgs))
	for left = msgs; len(left) > 0 && time.Now().Before(end); {
		var now, later []*consumer.Message
		soonest := end
		for _, m := range left {
			if at := due[m]; len(now) < batch && !at.After(time.Now()) {
				now = append(now, m)
				continue
			} else if at.Before(soonest) {
				soonest = at
			}
			later = append(later, m)
		}
		if len(now) == 0 {
			<-time.After(time.Until(soonest))
			continue
		}
		for i, err := range c.ProcessBatch(ctx, now) {
			if retry, ok := errors.AsType[*consumer.RetryError](err); ok {
				if !retry.Held {
					now[i].Attempt++
				}
				due[now[i]] = time.Now().Add(retry.After)
				later = append(later, now[i])
			}
		}
		left = later
	}
	return left
}

// While the parking limit is spent a flood of messages that fail runs a handler for each token, and no more.
func TestHandlersDoNotRunWhileTheParkingLimitIsSpent(t *testing.T) {
	const flood, workers, burst, perMinute, minutes = 200, 8, 10, 6, 10
	transient := errors.New("fails each time")
	for _, tc := range []struct {
		name string
		err  error
		most int // runs until the limit is spent, and then each minute
	}{
		{"for good", errPoison, 2*burst + workers},
		// each may be tried once, in a batch and alone, before any must be parked
		{"transiently", transient, 2*burst + 2*flood},
	} {
		for _, batched := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/batched %v", tc.name, batched), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, log := consumertest.NewStore(), &logs{}
					var runs atomic.Int64
					c := newConsumer(t, config{
						Store: store, ParkLimit: consumer.ParkLimit{Burst: burst, PerMinute: perMinute},
						Logger: log.logger(), MaxAttempts: 2,
						Handle: func(context.Context, tx, *consumer.Message) error { runs.Add(1); return tc.err },
					})
					var msgs []*consumer.Message
					for i := range flood {
						msgs = append(msgs, msg(fmt.Sprint(i), "x"))
					}
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute)
					defer cancel()
					if batched {
						redeliver(t.Context(), c, msgs, 50, minutes*time.Minute)
					} else {
						queue := make(chan *consumer.Message, flood)
						for _, m := range msgs {
							queue <- m
						}
						var all sync.WaitGroup
						for range workers {
							all.Go(func() {
								for ctx.Err() == nil {
									_ = c.Process(ctx, <-queue)
								}
							})
						}
						all.Wait()
					}
					most := int64(tc.most + minutes*perMinute + 1)
					if n := runs.Load(); n > most || n < burst+minutes*perMinute/3 {
						t.Errorf("%d handler runs in %v, want at most %d, and probes", n, time.Since(began), most)
					}
					if n := log.lines("consumer is still paused: too many messages to park"); n < minutes-3 ||
						n > minutes {
						t.Errorf("%d lines while paused for %d minutes, want one a minute:\n%s", n, minutes,
							log.buf.String())
					}
					if n := log.lines("waits_for="); n == 0 {
						t.Error("no line says what is waited for")
					}
				})
			})
		}
	}
}

// A probe that fails without being parked costs no token, and yet the next one waits as if it had.
func TestProbesThatFailAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := newConsumer(t, config{
			Store: consumertest.NewStore(), ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 6},
			Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
				runs++
				if err := poison(ctx, tx, m); err != nil {
					return err
				}
				return errors.New("transient")
			},
		})
		c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "poison"), msg("2", "poison")})
		runs = 0
		for i := range 60 {
			<-time.After(time.Second)
			before := runs
			err := c.ProcessBatch(t.Context(), []*consumer.Message{msg(fmt.Sprint("new ", i), "x")})[0]
			wantRetry(t, err, runs == before) // counted where it ran
		}
		if runs < 1 || runs > 6 {
			t.Errorf("%d handler runs in a minute, want at most 6", runs)
		}
	})
}

// A flood of poison beside good messages: all good ones are processed soon, and the pause ends.
func TestGoodMessagesGoOnWhenTheFloodIsOver(t *testing.T) {
	for _, batched := range []bool{true, false} {
		t.Run(fmt.Sprint("batched ", batched), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log, traced := consumertest.NewStore(), &logs{}, &events{}
				var resumed []observe.Pause
				trace := traced.trace()
				trace.Resumed = func(_ context.Context, p observe.Pause) { resumed = append(resumed, p) }
				c := newConsumer(t, config{
					Store: store, Handle: poison, Logger: log.logger(), Trace: trace,
					ParkLimit: consumer.ParkLimit{Burst: 10, PerMinute: 60},
				})
				var msgs []*consumer.Message
				const good, bad = 500, 50
				for i := range good + bad {
					payload := "good"
					if i < 2*bad && i%2 == 0 {
						payload = "poison"
					}
					msgs = append(msgs, msg(fmt.Sprint(i), payload))
				}
				if batched {
					if left := redeliver(t.Context(), c, msgs, 50, 10*time.Minute); len(left) > 0 {
						t.Errorf("%d messages are left after 10 minutes", len(left))
					}
				} else {
					began := time.Now()
					var workers sync.WaitGroup
					for _, m := range msgs {
						workers.Go(func() { process(t, c, m) })
					}
					workers.Wait()
					if took := time.Since(began); took > 10*time.Minute {
						t.Errorf("it took %v", took)
					}
				}
				for i, m := range msgs {
					if string(m.Payload) == "good" {
						wantCount(t, store.Database(), fmt.Sprint(i), 1)
					}
				}
				// Where the last probe of the flood failed, the pause ends with as many good messages as it takes to
				// open the gate again.
				<-time.After(time.Minute)
				for i := range 100 {
					process(t, c, msg(fmt.Sprint("last ", i), "good"))
				}
				if n := len(letters(t, c)); n != bad {
					t.Errorf("%d letters, want %d", n, bad)
				}
				if begins, ends := log.lines("consumer paused"), log.lines("consumer goes on"); begins == 0 ||
					begins != ends || len(resumed) != ends {
					t.Errorf("%d lines when it paused, %d when it went on, told %d times", begins, ends, len(resumed))
				}
				for _, p := range resumed {
					if p.Name != "billing" || p.Cause != observe.CauseBudget || !p.Since.Before(time.Now()) ||
						p.Err == nil {
						t.Errorf("told %+v", p)
					}
				}
			})
		})
	}
}

// A probe that the database fails, or that is a duplicate, proves nothing, and does not stop later probes.
func TestAProbeThatShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: consumertest.NewStore()}
		runs := 0
		c := newConsumer(t, config{
			Store: store, ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 60},
			Handle: func(ctx context.Context, tx tx, m *consumer.Message) error { runs++; return poison(ctx, tx, m) },
		})
		process(t, c, msg("known", "good"))
		batch := []*consumer.Message{msg("1", "poison"), msg("2", "poison"), msg("3", "good")}
		if errs := c.ProcessBatch(t.Context(), batch); !errors.Is(errs[1], consumer.ErrParkLimit) ||
			!errors.Is(errs[2], consumer.ErrParkLimit) {
			t.Fatalf("not paused: %v", errs)
		}
		for range 10 {
			<-time.After(time.Minute)
			runs = 0
			store.before = times(1, errFault)
			errs := c.ProcessBatch(t.Context(), []*consumer.Message{msg("known", "good"), msg("3", "good")})
			if runs != 0 || !errors.Is(errs[0], errFault) || !errors.Is(errs[1], consumer.ErrParkLimit) ||
				!strings.Contains(errs[1].Error(), "poison") {
				t.Fatalf("%d runs, %v; want one probe that the database fails", runs, errs)
			}
		}
		process(t, c, msg("known", "good"))
		process(t, c, msg("3", "good"))
		wantCount(t, store.Database(), "3", 1)
	})
}
