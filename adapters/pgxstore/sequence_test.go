package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

// sequenced runs each transaction of InTx between two others: its claim travels with the COMMIT of the one before, and another claim
// with its own COMMIT. With first, there is none before.
type sequenced struct {
	*node
	first bool
}

var others atomic.Int64

func (s sequenced) InTx(ctx context.Context, recs []dedup.Record, fn func(pgx.Tx, []dedup.Claim) error) error {
	q := s.Sequence()
	defer q.Close()
	if !s.first {
		if err := q.InTx(ctx, nil, recs, doNothing); err != nil {
			return err
		}
	}
	return q.InTx(ctx, recs, ordinaryRecord(fmt.Sprint("another ", others.Add(1))), fn)
}

// A Store keeps its promises when claims travel with COMMIT.
func TestStoreInSequence(t *testing.T) {
	t.Parallel() // beside the other suites
	deduptest.TestStore(t, deduptest.Harness[pgx.Tx]{
		New: func(t *testing.T) deduptest.DB[pgx.Tx] {
			db := newDB(t, testdb.Postgres(t))
			open, faulty := db.Open, db.Faulty
			db.Open = func(t *testing.T, o deduptest.Options) dedup.Store[pgx.Tx] {
				return sequenced{node: open(t, o).(*node)}
			}
			db.Faulty = func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[pgx.Tx] {
				return sequenced{faulty(t, o, f).(*node), true} // the fault hits the first COMMIT
			}
			db.SetClock = func(s dedup.Store[pgx.Tx], now func() time.Time) { pgxstore.SetClock(s.(sequenced).Store, now) }
			db.Connections = func(_ *testing.T, s dedup.Store[pgx.Tx]) int { return int(s.(sequenced).pool.Stat().AcquiredConns()) }
			return db
		},
		Isolations: isolations,
		Select: func(name, level string) bool { // TestStore runs all cases without a level
			return level == string(pgx.ReadCommitted) || level == "" && matrix.Dealt(name, 0, 2)
		},
		Codes: deduptest.PostgresCodes(),
	})
}

// inOrder is a consumer with one transaction per message.
func inOrder(t *testing.T, store dedup.Store[pgx.Tx], handle consumer.Handler[pgx.Tx]) *consumer.Consumer[pgx.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[pgx.Tx]{Name: "billing", Store: store, Key: consumer.MessageID, Handle: handle, MaxBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func writeEffect(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
	return effect(ctx, tx, m.ID)
}

func numbered(prefix string, n int) []*consumer.Message {
	msgs := make([]*consumer.Message, n)
	for i := range msgs {
		msgs[i] = &consumer.Message{ID: fmt.Sprint(prefix, i), Time: time.Now(), Attempt: 1}
	}
	return msgs
}

// A message that waits takes two round trips, because its claim travels with the COMMIT before it. Where that is not safe, it takes three.
func TestRoundTripsInSequence(t *testing.T) {
	const begin, insert, commit = `begin isolation level + insert into processed_messages`, `insert into effects`, `commit`
	together := []string{begin, insert, insert, commit} // the tracer does not see COMMIT with a claim
	apart := func(more ...string) []string {
		own := append(append([]string{begin, insert}, more...), commit)
		return append(own, own...)
	}
	plain := func(*pgxstore.Store, pgx.Tx) error { return nil }
	for name, tt := range map[string]struct {
		pool   func(*pgxpool.Config)
		store  func(*pgxstore.Store)
		handle func(*pgxstore.Store, pgx.Tx) error
		old    bool
		want   []string
	}{
		"two messages":    {handle: plain, want: together},
		"behind a pooler": {handle: plain, store: pgxstore.SetPooled, want: apart()},
		"a hook before each use of a connection": {handle: plain, want: apart(), pool: func(cfg *pgxpool.Config) {
			cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return true, nil }
		}},
		"a hook after each use of a connection": {handle: plain, want: apart(), pool: func(cfg *pgxpool.Config) {
			cfg.AfterRelease = func(*pgx.Conn) bool { return true }
		}},
		"a message so old that its key may be forgotten": {handle: plain, old: true, want: []string{
			begin + ` + select current_setting('transaction_isolation'), forgotten_until`, insert, commit,
			begin + ` + select current_setting('transaction_isolation'), forgotten_until`, insert, commit,
		}},
		"a handler that uses the connection": {want: apart(`select 1`), handle: func(_ *pgxstore.Store, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(t.Context(), `SELECT 1`)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			db := newOutboxDB(t, testdb.Postgres, 2)
			trips := &roundTrips{}
			cfg := db.pool.Config()
			cfg.MaxConns, cfg.ConnConfig.Tracer = 1, trips
			if tt.pool != nil {
				tt.pool(cfg)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer pool.Close()
			store := newStore(t, pgxstore.Config{Pool: pool})
			c := inOrder(t, store, func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
				return errors.Join(writeEffect(ctx, tx, m), tt.handle(store, tx))
			})
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tt.store != nil {
				tt.store(store)
			}
			for _, prefix := range []string{"prepares statements ", "m"} {
				trips.take()
				msgs := numbered(prefix, 2)
				for _, m := range msgs {
					if tt.old {
						m.Time = m.Time.Add(-24 * time.Hour)
					}
				}
				if err := errors.Join(c.ProcessBatch(t.Context(), msgs)...); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, trips.take()); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

// The end of ctx does not cut a COMMIT that a claim travels with.
func TestCommitOutlivesTheContextInSequence(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	db.exec(t, `CREATE TABLE gates (n int); CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(hashtext(current_schema())); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER gate AFTER INSERT ON gates DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION gate()`)
	store := newStore(t, pgxstore.Config{Pool: db.pool})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q := store.Sequence()
	defer q.Close()
	committed := make(chan error, 1)
	err := pgx.BeginFunc(t.Context(), db.pool, func(gate pgx.Tx) error {
		if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtext(current_schema()))`); err != nil {
			return err
		}
		go func() {
			committed <- q.InTx(ctx, ordinaryRecord("first"), ordinaryRecord("next"), func(tx pgx.Tx, _ []dedup.Claim) error {
				_, err := tx.Exec(ctx, `INSERT INTO gates VALUES (1)`)
				return err
			})
		}()
		for waits := false; !waits; { // COMMIT
			if err := gate.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks a JOIN pg_locks b USING (database, classid, objid)
				WHERE a.locktype = 'advisory' AND a.pid = pg_backend_pid() AND NOT b.granted)`).Scan(&waits); err != nil {
				return err
			}
		}
		cancel()
		select {
		case err := <-committed: // before COMMIT could finish
			committed <- err
		case <-time.After(200 * time.Millisecond):
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Errorf("InTx = %v, although COMMIT was sent before ctx ended; want nil", err)
	}
}

// While another transaction holds the next key, the message before is committed and answered.
func TestASequenceDoesNotWaitForTheNextKey(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	store := newStore(t, pgxstore.Config{Pool: db.pool, ClaimTimeout: 500 * time.Millisecond})
	other := newStore(t, pgxstore.Config{Pool: db.pool})
	ctx, next := t.Context(), ordinaryRecord("next")
	err := other.InTx(ctx, next, func(pgx.Tx, []dedup.Claim) error {
		q := store.Sequence()
		defer q.Close()
		if err := q.InTx(ctx, ordinaryRecord("first"), next, func(tx pgx.Tx, _ []dedup.Claim) error { return effect(ctx, tx, "first") }); err != nil {
			t.Errorf("the first: %v", err)
		}
		if diff := cmp.Diff([]string{"first"}, db.strings(t, `SELECT name FROM effects`)); diff != "" {
			t.Errorf("effects while the claim of the next message waits (-want +got):\n%s", diff)
		}
		if err := q.InTx(ctx, next, nil, doNothing); !errors.Is(err, dedup.ErrInFlight) {
			t.Errorf("the next one = %v, want ErrInFlight", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Nothing stays claimed after Close, after other records, and after a COMMIT that failed.
func TestASequenceThatEndsHoldsNoClaim(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 4)
	db.exec(t, `CREATE TABLE parents (id int PRIMARY KEY); CREATE TABLE children (parent int REFERENCES parents DEFERRABLE INITIALLY DEFERRED)`)
	store := newStore(t, pgxstore.Config{Pool: db.pool, ClaimTimeout: 20 * time.Second})
	ctx := t.Context()
	for name, tt := range map[string]struct {
		fn  func(pgx.Tx, []dedup.Claim) error
		end func(dedup.Sequence[pgx.Tx]) error
		err string
	}{
		"Close":         {doNothing, func(q dedup.Sequence[pgx.Tx]) error { q.Close(); return nil }, ""},
		"other records": {doNothing, func(q dedup.Sequence[pgx.Tx]) error { return q.InTx(ctx, ordinaryRecord("other"), nil, doNothing) }, ""},
		"a failed COMMIT": {func(tx pgx.Tx, _ []dedup.Claim) error {
			_, err := tx.Exec(ctx, `INSERT INTO children VALUES (1)`)
			return err
		}, func(dedup.Sequence[pgx.Tx]) error { return nil }, "23503"},
		"a failed handler": {func(pgx.Tx, []dedup.Claim) error { return errors.New("no") }, func(dedup.Sequence[pgx.Tx]) error { return nil }, "no"},
	} {
		t.Run(name, func(t *testing.T) {
			q := store.Sequence()
			defer q.Close()
			next := ordinaryRecord("after " + name)
			err := q.InTx(ctx, ordinaryRecord("before "+name), next, tt.fn)
			if says := fmt.Sprint(err); err == nil && tt.err != "" || err != nil && (tt.err == "" || !strings.Contains(says, tt.err) || store.Retryable(err)) {
				t.Errorf("InTx = %v, want an error of the handler that says %q", err, tt.err)
			}
			if err := tt.end(q); err != nil {
				t.Error(err)
			}
			verdict := dedup.Verdict(0)
			err = store.InTx(ctx, next, func(_ pgx.Tx, claims []dedup.Claim) error { verdict = claims[0].Verdict; return nil })
			if err != nil || verdict != dedup.First {
				t.Errorf("the claim that was made ahead left %v, %v; want that the key is free", verdict, err)
			}
		})
	}
}
