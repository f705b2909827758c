package consumer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// One letter has one line with ERROR, however often its message is parked again, and by whichever process. What is
// parked after its letter was discarded is news again.
func TestOneLetterOneError(t *testing.T) {
	for name, bad := range map[string]*consumer.Message{"poison": msg("bad", "poison"), "no key": msg("", "a")} {
		for _, unlimited := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/unlimited ", unlimited), func(t *testing.T) {
				log, store := &logs{}, consumertest.NewStore()
				cfg := config{
					Store: store, Handle: poison, Logger: log.logger(),
					ParkLimit: consumer.ParkLimit{Unlimited: unlimited},
				}
				c := newConsumer(t, cfg)
				process(t, c, bad)
				process(t, c, bad)
				cfg.Store = consumertest.NewStoreOn(store.Database())
				process(t, newConsumer(t, cfg), bad)
				letter := letters(t, c)[0]
				if log.lines("ERROR") != 1 || log.lines("message parked again") != 2 {
					t.Fatalf("want one ERROR, and two WARN that it was parked again:\n%s", log.buf.String())
				}
				if n := strings.Count(log.buf.String(), fmt.Sprint("letter=", letter.ID)); n != 3 {
					t.Errorf("%d lines name the letter %v, want 3:\n%s", n, letter.ID, log.buf.String())
				}
				if err := c.Discard(t.Context(), letter); err != nil {
					t.Fatal(err)
				}
				if name == "no key" { // a discarded one with a key is a duplicate
					process(t, c, bad)
					if log.lines("ERROR") != 2 {
						t.Errorf("it was parked after a discard, want a second ERROR:\n%s", log.buf.String())
					}
				}
			})
		}
	}
}

// A number that was read in another unit is parked with a hint before the first sweep and after it, and never handled.
func TestWrongUnitBeforeAndAfterASweep(t *testing.T) {
	store := consumertest.NewStore()
	db, now := store.Database(), time.Now()
	c := newConsumer(t, config{Store: store})
	for i, at := range []time.Time{
		time.UnixMilli(now.Unix()), time.Unix(0, now.Unix()),
		time.Unix(now.UnixMilli(), 0),
	} {
		process(t, c, &consumer.Message{ID: fmt.Sprint("before ", i), Time: at})
		process(t, c, &consumer.Message{ID: fmt.Sprint("good ", i), Time: now})
	}
	db.Age(dedup.DefaultWindow + time.Hour)
	if swept, err := store.Purge(t.Context(), dedup.Sweep{}); err != nil || swept.Keys == 0 {
		t.Fatalf("purge: %+v, %v", swept, err)
	}
	for i, at := range []time.Time{
		time.UnixMilli(now.Unix()), time.Unix(0, now.Unix()),
		time.Unix(now.UnixMilli(), 0),
	} {
		process(t, c, &consumer.Message{ID: fmt.Sprint("after ", i), Time: at})
	}
	for i := range 3 {
		wantCount(t, db, fmt.Sprint("good ", i), 1)
		wantCount(t, db, fmt.Sprint("before ", i), 0)
		wantCount(t, db, fmt.Sprint("after ", i), 0)
	}
	found := letters(t, c)
	if len(found) != 6 {
		t.Errorf("%d letters, want 6", len(found))
	}
	for _, l := range found {
		if l.Cause != observe.CausePermanent || !strings.Contains(l.Error, "does the sender use") {
			t.Errorf("%s: %s: %s; want a hint", l.Record.Key.ID, l.Cause, l.Error)
		}
	}
}
