package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// recorded counts the rows of the ledger for the messages with these IDs.
func recorded(s *consumertest.Store, ids ...string) (rows []int) {
	counts := map[dedup.KeyHash]int{}
	for _, r := range s.Database().Ledger() {
		counts[r.Key]++
	}
	for _, id := range ids {
		rows = append(rows, counts[dedup.Key{Consumer: "billing", ID: id}.Hash()])
	}
	return rows
}

func wantRecorded(t *testing.T, s *consumertest.Store, want string, ids ...string) {
	t.Helper()
	if got := fmt.Sprint(recorded(s, ids...)); got != want {
		t.Errorf("rows of %q: %s, want %s", ids, got, want)
	}
}

// A row of the ledger is committed with the handler's work, and only then.
func TestAuditEvery(t *testing.T) {
	for name, batch := range map[string]bool{"Handle": false, "HandleBatch": true} {
		t.Run(name, func(t *testing.T) {
			store := consumertest.NewStore()
			failures := 1
			handle := func(_ context.Context, tx tx, m *consumer.Message) error {
				if m.ID == "fails once" && failures > 0 {
					failures--
					return errors.New("not yet")
				}
				if m.ID == "broken" {
					return consumer.Permanent(errors.New("broken"))
				}
				return tx.Add(m.ID)
			}
			cfg := config{Store: store, AuditEvery: 1, Backoff: noBackoff, Handle: handle}
			if batch {
				cfg.Handle, cfg.HandleBatch = nil, func(ctx context.Context, tx tx, msgs []*consumer.Message) error {
					for _, m := range msgs {
						if err := handle(ctx, tx, m); err != nil {
							return err
						}
					}
					return nil
				}
			}
			c := newConsumer(t, cfg)
			for range 2 { // the second time all are duplicates
				for _, id := range []string{"alone", "fails once", "broken"} {
					process(t, c, msg(id, "x"))
				}
				c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "x"), msg("2", "x"), msg("1", "x")})
			}
			wantRecorded(t, store, "[1 1 0 1 1]", "alone", "fails once", "broken", "1", "2")
			wantRecorded(t, store, "[0]", "start") // of the trial at start
			// The claim is gone, and the message is delivered again.
			if err := store.InTx(t.Context(), nil, func(tx tx, _ []dedup.Claim) error {
				return store.Forget(t.Context(), tx, dedup.Key{Consumer: "billing", ID: "alone"})
			}); err != nil {
				t.Fatal(err)
			}
			process(t, c, msg("alone", "x"))
			wantRecorded(t, store, "[2]", "alone")
		})
	}
}

// A dead letter that is replayed is recorded too.
func TestAuditEveryReplay(t *testing.T) {
	store := consumertest.NewStore()
	broken := true
	c := newConsumer(t, config{Store: store, AuditEvery: 1, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
		if broken {
			return consumer.Permanent(errors.New("broken"))
		}
		return tx.Add(m.ID)
	}})
	process(t, c, msg("order", "x"))
	wantRecorded(t, store, "[0]", "order")
	letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil || len(letters) != 1 {
		t.Fatalf("%v, %v", letters, err)
	}
	broken = false
	if ran, err := c.Replay(t.Context(), letters[0], consumer.Replay{}); err != nil || !ran {
		t.Fatalf("%v, %v", ran, err)
	}
	wantRecorded(t, store, "[1]", "order")
}

// Which keys are recorded depends on the key alone, and about one in AuditEvery is.
func TestAuditEverySelects(t *testing.T) {
	const n, every = 5000, 10
	var first []int
	for range 2 {
		store := consumertest.NewStore()
		c := newConsumer(t, config{Store: store, AuditEvery: every})
		rows, ids := 0, make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint("order-", i)
			process(t, c, msg(ids[i], "x"))
		}
		got := recorded(store, ids...)
		for _, r := range got {
			rows += r
		}
		if rows < n/every*7/10 || rows > n/every*13/10 {
			t.Errorf("%d of %d keys were recorded, want about one in %d", rows, n, every)
		}
		if first != nil && fmt.Sprint(got) != fmt.Sprint(first) {
			t.Error("two consumers have recorded different keys")
		}
		first = got
	}
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store})
	for i := range 100 {
		process(t, c, msg(fmt.Sprint("order-", i), "x"))
		wantRecorded(t, store, "[0]", fmt.Sprint("order-", i))
	}
}

// refusing is a store whose ledger cannot be written.
type refusing struct{ *consumertest.Store }

func (refusing) RecordHandled(context.Context, tx, dedup.Key, string, time.Duration) error {
	return errors.New("permission denied for table audit_ledger")
}

// noLedger is a store without one.
type noLedger struct{ dedup.Store[tx] }

// A ledger that is missing or cannot be written is reported at start, not by messages that are parked for it.
func TestAuditEveryIsChecked(t *testing.T) {
	store := consumertest.NewStore()
	good := config{Name: "billing", Store: store, Key: consumer.MessageID, Handle: effect}
	for want, spoil := range map[string]func(cfg *config){
		"Config.AuditEvery is -1":                      func(cfg *config) { cfg.AuditEvery = -1 },
		"a consumer_test.noLedger has no audit_ledger": func(cfg *config) { cfg.AuditEvery, cfg.Store = 1000, noLedger{store} },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := consumer.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := newConsumer(t, config{Store: refusing{store}, AuditEvery: 1000})
	if err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "Config.AuditEvery: permission denied") {
		t.Errorf("%v", err)
	}
}
