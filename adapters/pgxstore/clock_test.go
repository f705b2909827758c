package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/relay"
)

// TestClockSetBack sets the clock of a real server back by an hour, while one relay is dead and another one waits for
// retries. All messages are published soon after, not an hour later.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	server, clock := testdb.StartPostgresWithClock(t)
	pool, err := pgxpool.New(t.Context(), server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	store := newStore(t, pgxstore.Config{Pool: pool})
	const n = 300
	p := &failsFirst{tries: map[string]int{}, done: make(chan struct{}), first: make(chan struct{}), n: n}
	r, err := relay.New(relay.Config{
		Queue: store, Publisher: p, LeaseTTL: 5 * time.Second, MaxAttempts: 100,
		Backoff: func(int) time.Duration { return 3 * time.Second },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	dead, err := store.Open(t.Context(), driver.SessionOptions{Name: "dead", TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for tick := time.Tick(100 * time.Millisecond); ; <-tick { // until it has its share
		hold, err := dead.Renew(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if hold.Shards >= 20 {
			break
		}
	}
	err = store.InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
		for i := range n {
			m := outbox.Message{ID: fmt.Sprint(i), Topic: "t", Payload: []byte("p")}
			if i%2 == 0 {
				m.OrderingKey = fmt.Sprint("k", i)
			}
			if err := store.Enqueue(t.Context(), tx, m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.first:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was tried in 30 s")
	}
	clock.Set(t, -time.Hour)
	began := time.Now()
	select {
	case <-p.done:
		t.Logf("all were published %v after the clock was set back", time.Since(began))
	case <-time.After(40 * time.Second):
		p.mu.Lock()
		defer p.mu.Unlock()
		t.Fatalf("%d of %d messages were published in 40 s", p.sent, n)
	}
}

// failsFirst refuses each message once.
type failsFirst struct {
	mu    sync.Mutex
	tries map[string]int
	sent  int
	n     int
	first chan struct{}
	done  chan struct{}
}

var errFirst = errors.New("the first try fails")

func (p *failsFirst) Publish(_ context.Context, msgs []outbox.Message) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		if len(p.tries) == 0 {
			close(p.first)
		}
		p.tries[m.ID]++
		switch p.tries[m.ID] {
		case 1:
			errs[i] = errFirst
		case 2:
			if p.sent++; p.sent == p.n {
				close(p.done)
			}
		default: // a repeat
		}
	}
	return errs
}

// The clock of the server itself jumps 20 days ahead, and is set right again: txonce_sweep deletes nothing meanwhile.
func TestSweepProcedureOnAServerWhoseClockJumps(t *testing.T) {
	t.Parallel()
	server, clock := testdb.StartPostgresWithClock(t)
	db := newOutboxDBAt(t, server.DSN, 2)
	db.mustSweep(t, ``, swept{0, true})
	at := time.Now()
	db.claimAt(t, "k", at, dedup.First)
	clock.Set(t, 20*24*time.Hour)
	if s, err := callSweep(t.Context(), db.pool, `'1 second'`); err == nil ||
		!strings.Contains(err.Error(), "if the clock has jumped ahead") {
		t.Errorf("while the clock is wrong: %+v, error %v", s, err)
	}
	clock.Set(t, 0)
	db.mustSweep(t, ``, swept{0, true})
	db.claimAt(t, "k", at, dedup.Duplicate)
}
