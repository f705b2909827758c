package consumer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// While the handlers' table is broken, what runs no handler proves nothing: the pause begins once, and ends once.
func TestWhatRunsNoHandlerEndsNoPause(t *testing.T) {
	for name, repeat := range map[string]func(i int) *consumer.Message{
		"duplicates":             func(int) *consumer.Message { return msg("known", "good") },
		"mismatches":             func(i int) *consumer.Message { return msg("known", fmt.Sprint("other ", i)) },
		"messages without a key": func(i int) *consumer.Message { m := msg("", "a"); m.Position = fmt.Sprint(i); return m },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, traced := &logs{}, &events{}
				var broken atomic.Bool
				c := newConsumer(t, config{
					Store: &faulty{Store: consumertest.NewStore()}, Logger: log.logger(), Trace: traced.trace(),
					ParkLimit: consumer.ParkLimit{Unlimited: true},
					Handle: func(ctx context.Context, tx tx, m *consumer.Message) error {
						if broken.Load() {
							return tx.Fail(errFault)
						}
						return effect(ctx, tx, m)
					},
				})
				process(t, c, msg("known", "good"))
				broken.Store(true)
				for i := range 100 {
					wantRetry(t, c.ProcessBatch(t.Context(),
						[]*consumer.Message{msg(fmt.Sprint("new ", i%5), "")})[0], true)
					if i%7 == 6 {
						process(t, c, repeat(i))
					}
					<-time.After(100 * time.Millisecond)
				}
				if begins, ends := log.lines("consumer paused"), log.lines("goes on"); begins != 1 || ends != 0 ||
					traced.count("resumed") != 0 {
					t.Errorf("%d lines when it paused, %d when it went on; want 1 and 0:\n%s", begins, ends,
						log.buf.String())
				}
				broken.Store(false)
				process(t, c, msg("new 0", ""))
				if ends := log.lines("goes on"); ends != 1 || traced.count("resumed") != 1 {
					t.Errorf("%d lines when it went on after a handler, want 1", ends)
				}
			})
		})
	}
}

// A pause because letters cannot be written ends with a letter, or with handlers when the message has stayed away.
func TestHandlersDoNotProveThatLettersCanBeWritten(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("the message stays away: ", away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &logs{}
				var faults atomic.Int64
				faults.Store(1000)
				c := newConsumer(t, config{
					Store: &unparkable{consumertest.NewStore(), &faults}, Logger: log.logger(),
					Handle: poison,
				})
				for i := range 20 {
					wantRetry(t, c.ProcessBatch(t.Context(), []*consumer.Message{msg("bad", "poison")})[0], true)
					process(t, c, msg(fmt.Sprint("good ", i), ""))
				}
				if begins, ends := log.lines("consumer paused"), log.lines("goes on"); begins != 1 || ends != 0 {
					t.Errorf("%d lines when it paused, %d when it went on; want 1 and 0:\n%s", begins, ends,
						log.buf.String())
				}
				if away {
					<-time.After(10 * time.Minute)
					process(t, c, msg("last", ""))
				} else {
					faults.Store(0)
					process(t, c, msg("bad", "poison"))
				}
				if ends := log.lines("goes on"); ends != 1 {
					t.Errorf("%d lines when it went on, want 1:\n%s", ends, log.buf.String())
				}
			})
		})
	}
}

// A claim that works again ends a pause that claims began, also if nothing but duplicates comes.
func TestADuplicateEndsAPauseOfClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := &faulty{Store: consumertest.NewStore()}, &logs{}
		c := newConsumer(t, config{Store: store, Logger: log.logger()})
		process(t, c, msg("known", ""))
		store.before = times(5, errFault)
		process(t, c, msg("known", ""))
		if begins, ends := log.lines("consumer paused"), log.lines("goes on"); begins != 1 || ends != 1 {
			t.Errorf("%d lines when it paused, %d when it went on; want 1 each", begins, ends)
		}
	})
}
