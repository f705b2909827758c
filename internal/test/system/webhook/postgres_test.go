package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// postgres returns a pool on a fresh schema with txonce's tables and the table effects, whose rows are what handlers
// did.
func postgres(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testdb.Schema(t, testdb.Postgres(t)))
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 20
	cfg.ConnConfig.RuntimeParams["application_name"] = cfg.ConnConfig.RuntimeParams["search_path"] // for cutConnections
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	tables := testdb.PostgresTables(t, "CREATE TABLE effects (id text NOT NULL, topic text NOT NULL)")
	if _, err := pool.Exec(t.Context(), tables, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	return pool
}

func pgStore(t *testing.T, pool *pgxpool.Pool) *pgxstore.Store {
	t.Helper()
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, ClaimTimeout: 2 * time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// insert is a handler that writes one row.
func insert(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1, $2)", m.ID, m.Topic)
	return err
}

func pgConsumer(t *testing.T, store *pgxstore.Store, handle consumer.Handler[pgx.Tx]) *consumer.Consumer[pgx.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Handle: handle, Logger: slog.New(slog.DiscardHandler),
		Backoff: func(int) time.Duration { return time.Millisecond },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func query(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	if err := pool.QueryRow(context.WithoutCancel(t.Context()), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func pgLetters(t *testing.T, c *consumer.Consumer[pgx.Tx]) []consumer.DeadLetter {
	t.Helper()
	found, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func pgInbox(t *testing.T, store *pgxstore.Store) *webhook.Inbox[pgx.Tx] {
	t.Helper()
	in, err := webhook.NewInbox(webhook.InboxConfig[pgx.Tx]{Name: "billing", Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestKnownContentPostgres(t *testing.T) {
	t.Run("inline", func(t *testing.T) {
		pool := postgres(t)
		c := pgConsumer(t, pgStore(t, pool), insert)
		testReplays(t, env{
			c, func(id string) int { return query(t, pool, "SELECT count(*) FROM effects WHERE id = $1", id) },
			func() []consumer.DeadLetter { return pgLetters(t, c) },
		})
	})
	t.Run("stored and forwarded", func(t *testing.T) {
		pool := postgres(t)
		store := pgStore(t, pool)
		in := pgInbox(t, store)
		c := pgConsumer(t, store, insert)
		rl := newRelay(t, relay.Config{Queue: store, Publishers: map[string]outbox.Publisher{in.Topic(): newWorker(t, webhook.WorkerConfig{Processor: c})}})
		testReplays(t, env{in, func(id string) int {
			for { // another relay's lease, or a restart of the session, may leave messages for later
				if n, err := rl.RunOnce(t.Context()); err != nil {
					t.Fatal(err)
				} else if n == 0 {
					return query(t, pool, "SELECT count(*) FROM effects WHERE id = $1", id)
				}
			}
		}, func() []consumer.DeadLetter { return pgLetters(t, in.Consumer()) }})
	})
}

func TestIDsPostgres(t *testing.T) {
	s, pool := newShop(), postgres(t)
	store := pgStore(t, pool)
	for name, processor := range map[string]interface {
		driver.BatchProcessor
		DeadLetters(context.Context, consumer.DeadLetterFilter) ([]consumer.DeadLetter, error)
	}{"inline": pgConsumer(t, store, insert), "stored": lettersOf{pgInbox(t, store)}} {
		t.Run("case 72: "+name, func(t *testing.T) {
			r := newReceiver(t, webhook.Config{Verifier: s, Processor: processor})
			long := strings.Repeat("é", 150)
			for _, id := range []string{long + "1", long + "2", "nul\x00", strings.Repeat("x", dedup.MaxID+1)} {
				wantStatus(t, s.send(t, r, shopEvent{ID: id, Type: name}), 200)
			}
			found, err := processor.DeadLetters(t.Context(), consumer.DeadLetterFilter{})
			if err != nil || len(found) != 2 || found[0].Cause != observe.CauseNoKey {
				t.Errorf("letters %v, %v; want the two impossible ids", found, err)
			}
		})
	}
	if n := query(t, pool, "SELECT count(DISTINCT id) FROM effects"); n != 2 {
		t.Errorf("%d effects of two long ids", n)
	}
	if n := query(t, pool, "SELECT count(DISTINCT id) FROM processed_messages WHERE consumer = 'billing/inbox'"); n != 2 {
		t.Errorf("%d stored events of two long ids", n)
	}
}

type lettersOf struct{ *webhook.Inbox[pgx.Tx] }

func (l lettersOf) DeadLetters(ctx context.Context, f consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	return l.Consumer().DeadLetters(ctx, f)
}

// storm delivers each event 20 times from 16 clients, out of order, and hangs up at random. Then it delivers each once
// more, until it is accepted.
func storm(t *testing.T, s *shop, receivers []*webhook.Receiver, events int) {
	const copies, clients = 20, 16
	created := time.Now()
	event := func(i int) shopEvent { return shopEvent{ID: fmt.Sprint(i), Type: "paid", Created: created} }
	jobs := make(chan int, events*copies)
	for _, n := range rand.Perm(events * copies) {
		jobs <- n % events
	}
	close(jobs)
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for i := range jobs {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rand.IntN(20))*time.Millisecond)
				do(receivers[client%len(receivers)], s.request(ctx, event(i)))
				cancel()
			}
		})
	}
	wg.Wait()
	for client := range clients {
		wg.Go(func() {
			for i := client; i < events; i += clients {
				if n := (sender{s, receivers[i%len(receivers)], 50 * time.Millisecond}).deliver(t, event(i),
					time.Millisecond, 1000); n == 0 {
					t.Errorf("event %d is never accepted", i)
				}
			}
		})
	}
	wg.Wait()
}

// cutConnections ends a connection of pool every 20 ms, wherever its transaction is, until it has ended 50 or stop is
// called. On a busy machine more of them would leave no transaction the time to commit.
func cutConnections(t *testing.T, pool *pgxpool.Pool) (stop func()) {
	cfg := pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["application_name"] = "cuts connections"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, cuts := make(chan struct{}), 0
	go func() {
		defer close(ended)
		defer conn.Close(context.WithoutCancel(ctx))
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil && cuts < 50; {
			const one = `SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle' ORDER BY random() LIMIT 1`
			if n, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM ("+one+") AS one",
				pool.Config().ConnConfig.RuntimeParams["application_name"]); err == nil {
				cuts += int(n.RowsAffected())
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				tick.Stop()
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		pool.Reset() // it does not know yet which connections were cut
		if cuts == 0 {
			t.Error("no connection was cut")
		}
	}
}

func byChance(handle consumer.Handler[pgx.Tx]) consumer.Handler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if err := handle(ctx, tx, m); err != nil {
			return err
		}
		if rand.IntN(3) == 0 {
			return errors.New("by chance")
		}
		return nil
	}
}

func TestRedeliveryStormPostgres(t *testing.T) {
	const events = 50
	t.Run("inline, on two nodes", func(t *testing.T) {
		s, pool := newShop(), postgres(t)
		var receivers []*webhook.Receiver
		var lots []*consumer.Consumer[pgx.Tx]
		for range 2 {
			c := pgConsumer(t, pgStore(t, pool), byChance(insert))
			lots = append(lots, c)
			receivers = append(receivers, newReceiver(t, webhook.Config{Verifier: s, Processor: c}))
		}
		stop := cutConnections(t, pool)
		storm(t, s, receivers, events)
		stop()
		for _, r := range receivers {
			if err := r.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		audit(t, pool, events, "billing")
		if found := pgLetters(t, lots[0]); len(found) != 0 {
			t.Errorf("parked: %v", found)
		}
	})
	t.Run("stored and forwarded, on two nodes", func(t *testing.T) {
		s, pool := newShop(), postgres(t)
		s.source.GiveUpAfter = 0
		var receivers []*webhook.Receiver
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var relays sync.WaitGroup
		for range 2 {
			store := pgStore(t, pool)
			in := pgInbox(t, store)
			receivers = append(receivers, newReceiver(t, webhook.Config{Verifier: s, Processor: in}))
			c := pgConsumer(t, store, func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				if m.Attempt == 1 && rand.IntN(3) == 0 {
					return errors.New("by chance")
				}
				return insert(ctx, tx, m)
			})
			rl := newRelay(t, relay.Config{Queue: store, Publisher: newWorker(t, webhook.WorkerConfig{Processor: c, MaxBatch: 5}), Backoff: func(int) time.Duration { return time.Millisecond }})
			relays.Go(func() {
				if err := rl.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		storm(t, s, receivers, events)
		for began := time.Now(); query(t, pool, "SELECT count(*) FROM effects") < events &&
			time.Since(began) < time.Minute; {
			<-time.After(10 * time.Millisecond)
		}
		stop()
		relays.Wait()
		audit(t, pool, events, "billing", "billing/inbox")
	})
}

// audit looks for events without an effect or with two, and for effects without a claim.
func audit(t *testing.T, pool *pgxpool.Pool, events int, consumers ...string) {
	t.Helper()
	if n := query(t, pool, "SELECT count(*) FROM effects"); n != events {
		t.Errorf("%d effects of %d events", n, events)
	}
	if n := query(t, pool, "SELECT count(DISTINCT id) FROM effects"); n != events {
		t.Errorf("%d of %d events have effects", n, events)
	}
	for _, name := range consumers {
		if n := query(t, pool, "SELECT count(*) FROM processed_messages WHERE consumer = $1", name); n != events {
			t.Errorf("%d claims of %s for %d events", n, name, events)
		}
	}
}
