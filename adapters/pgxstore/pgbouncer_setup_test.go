package pgxstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// Register rejects a pool with a mode of pgx that does not work through a pooler, so that messages do not fail later.
func TestPoolerModes(t *testing.T) {
	t.Parallel()
	pooled, direct := testdb.PgBouncer(t)
	migrated := testPool(t, direct, 1)
	if err := pgxstore.Migrate(t.Context(), migrated, ""); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dsn string
		want      string // empty: the mode works
	}{
		{"the default", pooled, "default_query_exec_mode=exec"},
		{"describe_exec", pooled + "&default_query_exec_mode=describe_exec", "default_query_exec_mode=exec"},
		{"exec", pooled + "&default_query_exec_mode=exec", ""},
		{"cache_describe", pooled + "&default_query_exec_mode=cache_describe", ""},
		{"simple_protocol", pooled + "&default_query_exec_mode=simple_protocol", ""},
		{"the default without a pooler", direct, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 3 { // the server's session may already know the statement of the previous attempt
				s := newStore(t, pgxstore.Config{Pool: testPool(t, tt.dsn, 2)})
				pgxstore.SetPoolerWithin(s, 2*time.Minute)
				err := s.Register(t.Context(), "billing", 0)
				switch {
				case tt.want == "" && err != nil:
					t.Errorf("Register = %v", err)
				case tt.want != "" && (err == nil || s.Retryable(err) || !strings.Contains(err.Error(), tt.want)):
					t.Errorf("Register = %v; want an error that says %q, and is not retryable", err, tt.want)
				}
			}
		})
	}
	t.Run("the default in session mode", func(t *testing.T) {
		session, _ := testdb.StartPgBouncer(t, direct, "pool_mode = session")
		s := newStore(t, pgxstore.Config{Pool: testPool(t, session, 2)})
		if err := s.Register(t.Context(), "billing", 0); err != nil {
			t.Error(err)
		}
	})
	t.Run("one session for all", func(t *testing.T) { // the check finds out nothing and does not hang
		narrow, _ := testdb.StartPgBouncer(t, direct, "default_pool_size = 1")
		s := newStore(t, pgxstore.Config{Pool: testPool(t, narrow, 2)})
		if err := s.Register(t.Context(), "billing", 0); err != nil {
			t.Error(err)
		}
	})
}

// More transactions run at once than the pooler has sessions, and several clients share each session.
func TestPgBouncerSessionsAreShared(t *testing.T) {
	t.Parallel()
	_, direct := testdb.PgBouncer(t)
	narrow, _ := testdb.StartPgBouncer(t, direct, "default_pool_size = 3")
	dsn := narrow + "&default_query_exec_mode=exec"
	pool := testPool(t, dsn, 1)
	if err := pgxstore.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effects (name text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	var (
		mu      sync.Mutex
		servers = map[uint32]bool{}
		wg      sync.WaitGroup
	)
	for worker := range 12 {
		// each Store is a client of its own
		s := newStore(t, pgxstore.Config{Pool: testPool(t, dsn, 1), ClaimTimeout: 2 * time.Minute})
		wg.Go(func() {
			for i := range 10 {
				// Two copies of each message are handled.
				rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: fmt.Sprint(worker/2, i)}, Time: time.Now()}
				err := s.InTx(t.Context(), []dedup.Record{rec}, func(tx pgx.Tx, claims []dedup.Claim) error {
					var pid uint32
					if err := tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
						return err
					}
					mu.Lock()
					servers[pid] = true
					mu.Unlock()
					if claims[0].Verdict != dedup.First {
						return nil
					}
					_, err := tx.Exec(t.Context(), `INSERT INTO effects VALUES ($1)`, rec.Key.ID)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(servers) == 0 || len(servers) > 3 {
		t.Errorf("%d sessions served 12 clients, want 1 to 3", len(servers))
	}
	var effects, different int
	if err := pool.QueryRow(t.Context(), `SELECT count(*), count(DISTINCT name) FROM effects`).Scan(&effects,
		&different); err != nil || effects != 60 || different != 60 {
		t.Errorf("%d effects of %d messages, %v; want 60 of 60", effects, different, err)
	}
}

// A relay behind a pooler publishes everything. With Config.Direct it is notified of commits elsewhere. Without it, it
// logs one warning.
func TestRelayBehindPgBouncer(t *testing.T) {
	t.Parallel()
	pooled, direct := testdb.PgBouncer(t)
	dsn := pooled + "&default_query_exec_mode=exec"
	if err := pgxstore.Migrate(t.Context(), testPool(t, direct, 1), ""); err != nil {
		t.Fatal(err)
	}
	straight, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*pgx.ConnConfig{"polling": nil, "woken": straight} {
		t.Run(name, func(t *testing.T) {
			log := &logged{}
			logger := slog.New(slog.NewTextHandler(log, nil))
			writer := newStore(t, pgxstore.Config{Pool: testPool(t, dsn, 4), Logger: logger})
			queue := newStore(t, pgxstore.Config{Pool: testPool(t, dsn, 4), Direct: cfg, Logger: logger})
			poll := 100 * time.Millisecond
			if cfg != nil {
				poll = time.Hour // so only NOTIFY can cause the poll
			}
			sent := &sentList{}
			r, err := relay.New(relay.Config{
				Queue: queue, Publisher: sent, PollMin: poll, PollMax: poll,
				Logger: logger,
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- r.Run(ctx) }()
			commit := func(i int) {
				err := writer.InTx(t.Context(), nil, func(tx pgx.Tx, _ []dedup.Claim) error {
					return writer.Enqueue(t.Context(), tx,
						outbox.Message{ID: fmt.Sprint(name, i), Topic: "events", OrderingKey: "k"})
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			n := 50
			for i := range n {
				commit(i)
			}
			said := func() int { return strings.Count(log.String(), "LISTEN does not work") }
			deadline := time.After(2 * time.Minute)
			lost := time.NewTicker(15 * time.Second)
			defer lost.Stop()
			for sent.len() < n || cfg == nil && said() == 0 {
				select {
				case <-deadline:
					t.Fatalf("%d of %d messages published; log:\n%s", sent.len(), n, log)
				case <-lost.C: // a NOTIFY times out after 10 s, and no poll follows until the next commit
					commit(n)
					n++
				case <-time.After(10 * time.Millisecond):
				}
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			for i, id := range sent.list() {
				if id != fmt.Sprint(name, i) {
					t.Fatalf("message %d is %s: not in order", i, id)
				}
			}
			if n := said(); (n == 1) != (cfg == nil) {
				t.Errorf("%d warnings that LISTEN does not work; want 1 without Config.Direct, and 0 with it", n)
			}
		})
	}
}

// sentList confirms and records every message.
type sentList struct {
	mu  sync.Mutex
	ids []string
}

func (l *sentList) Publish(_ context.Context, msgs []outbox.Message) []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range msgs {
		l.ids = append(l.ids, msgs[i].ID)
	}
	return nil
}

func (l *sentList) len() int { return len(l.list()) }

func (l *sentList) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ids)
}

type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
