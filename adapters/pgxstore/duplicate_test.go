package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

func redeliveredRecord(id string) []dedup.Record {
	rec := ordinaryRecord(id)
	rec[0].Redelivered = true
	return rec
}

func ordinaryRecord(id string) []dedup.Record {
	return []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: id}, Time: time.Now()}}
}

func doNothing(pgx.Tx, []dedup.Claim) error { return nil }

// A duplicate takes two round trips, and one if it is marked as redelivered. A saved result takes none.
func TestRoundTripsOfOneMessage(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	ctx := t.Context()
	effect := func(tx pgx.Tx, _ []dedup.Claim) error { return effect(ctx, tx, "e") }
	saves := func(key string, before, after func(pgx.Tx, []dedup.Claim) error) func(pgx.Tx, []dedup.Claim) error {
		return func(tx pgx.Tx, claims []dedup.Claim) error {
			return errors.Join(before(tx, claims), store.SaveResult(ctx, tx, ordinaryRecord(key)[0].Key, []byte("r")),
				after(tx, claims))
		}
	}
	const (
		claim  = `begin isolation level + insert into processed_messages`
		insert = `insert into effects`
		save   = `with saved as`
	)
	for _, tt := range []struct {
		name, id string
		recs     func(id string) []dedup.Record
		fn       func(pgx.Tx, []dedup.Claim) error
		want     []string
	}{
		{"new", "new", ordinaryRecord, effect, []string{claim, insert, `commit`}},
		{"duplicate", "old", ordinaryRecord, doNothing, []string{claim, `select key, fingerprint, + commit`}},
		{
			"duplicate that is used", "old", ordinaryRecord, effect,
			[]string{claim, `select key, fingerprint, + commit`, `begin isolation level + select current_setting('synchronous_standby_names') <>`, insert, `commit`},
		},
		{"redelivered", "old", redeliveredRecord, doNothing, []string{`select key, fingerprint,`}},
		{
			"redelivered and new", "again", redeliveredRecord, effect,
			[]string{`select key, fingerprint,`, claim, insert, `commit`},
		},
		{
			"result", "saved", ordinaryRecord, saves("saved", effect, doNothing),
			[]string{claim, insert, save + ` + commit`},
		},
		{
			"result, then a statement", "early", ordinaryRecord, saves("early", doNothing, effect),
			[]string{claim, save, insert, `commit`},
		},
		{
			"result of another key", "new", ordinaryRecord, saves("old", doNothing, doNothing),
			[]string{claim, `update processed_messages set`, `commit`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 2 { // statements are prepared the first time
				db.exec(t, testdb.Unguarded(`DELETE FROM processed_messages WHERE id <> 'old'`))
				for _, id := range []string{"old", "ends a run of duplicates"} {
					if err := store.InTx(ctx, ordinaryRecord(id), doNothing); err != nil {
						t.Fatal(err)
					}
				}
				trips.take()
				if err := store.InTx(ctx, tt.recs(tt.id), tt.fn); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, trips.take()); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

// In a run of duplicates each message is looked for first. The first new message ends the run.
func TestRoundTripsInARunOfDuplicates(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	claim := func(id string) int {
		if err := store.InTx(t.Context(), ordinaryRecord(id), doNothing); err != nil {
			t.Fatal(err)
		}
		return len(trips.take())
	}
	for _, id := range []string{"old", "old", "old", "old", "old", "old", "new"} {
		// statements are prepared the first time
		claim(id)
	}
	var got []int
	for _, id := range []string{"old", "old", "old", "old", "old", "old", "newer", "newest"} {
		got = append(got, claim(id))
	}
	if diff := cmp.Diff([]int{2, 2, 2, 2, 1, 1, 3, 2}, got); diff != "" {
		t.Errorf("round trips (-want +got):\n%s", diff)
	}
}

// A batch whose messages are all redelivered, or that follows a run of duplicates, takes one round trip if it has only
// duplicates, and no more than another batch if it has some.
func TestRoundTripsOfABatchOfDuplicates(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	const (
		claim  = `begin isolation level + with new as`
		one    = `begin isolation level + insert into processed_messages`
		look   = `select current_setting('synchronous_standby_names') <> + select p.key, p.fingerprint,`
		lookIn = `select p.key, p.fingerprint, + commit`
	)
	batch := func(redelivered bool, ids ...string) (recs []dedup.Record) {
		for _, id := range ids {
			rec := ordinaryRecord(id)
			rec[0].Redelivered = redelivered
			recs = append(recs, rec...)
		}
		return recs
	}
	run := func(recs []dedup.Record) ([]dedup.Verdict, []string) {
		var verdicts []dedup.Verdict
		err := store.InTx(t.Context(), recs, func(_ pgx.Tx, claims []dedup.Claim) error {
			for _, c := range claims {
				verdicts = append(verdicts, c.Verdict)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return verdicts, trips.take()
	}
	oneRedelivered := append(batch(true, "a"), batch(false, "b")...)
	for _, tt := range []struct {
		name     string
		recs     []dedup.Record
		verdicts []dedup.Verdict
		trips    []string
	}{
		{
			"not redelivered", batch(false, "a", "b"),
			[]dedup.Verdict{dedup.Duplicate, dedup.Duplicate},
			[]string{claim, lookIn},
		},
		{
			"one is redelivered", oneRedelivered,
			[]dedup.Verdict{dedup.Duplicate, dedup.Duplicate},
			[]string{claim, lookIn},
		},
		{"redelivered", batch(true, "a", "b"), []dedup.Verdict{dedup.Duplicate, dedup.Duplicate}, []string{look}},
		{
			"redelivered, and one is new", batch(true, "a", "new"),
			[]dedup.Verdict{dedup.Duplicate, dedup.First},
			[]string{look, one, `commit`},
		},
		{
			"redelivered, and all are new", batch(true, "newer", "newest"),
			[]dedup.Verdict{dedup.First, dedup.First},
			[]string{look, claim, `commit`},
		},
		{"no message", nil, nil, []string{`begin isolation level + select current_setting('synchronous_standby_names') <>`, `commit`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var verdicts []dedup.Verdict
			var trips []string
			for range 2 { // statements are prepared the first time
				db.exec(t, testdb.Unguarded(`DELETE FROM processed_messages`))
				run(batch(false, "a", "b"))
				verdicts, trips = run(tt.recs)
			}
			if diff := cmp.Diff(tt.verdicts, verdicts); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.trips, trips); diff != "" {
				t.Errorf("round trips (-want +got):\n%s", diff)
			}
		})
	}
}

// In a run of duplicates a batch is looked for first, too.
func TestRoundTripsOfBatchesInARunOfDuplicates(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	store, trips := db.traced(t)
	batch := append(ordinaryRecord("a"), ordinaryRecord("b")...)
	var got []int
	for range 8 {
		if err := store.InTx(t.Context(), batch, doNothing); err != nil {
			t.Fatal(err)
		}
		got = append(got, len(trips.take()))
	}
	if n := got[len(got)-1]; n != 1 {
		t.Errorf("the last of %d batches of the same messages takes %d round trips, want 1: %v", len(got), n, got)
	}
}

// The handler of a duplicate gets a transaction that works as any other.
func TestTransactionOfADuplicate(t *testing.T) {
	undo := errors.New("undo")
	for name, tt := range map[string]struct {
		fn      func(ctx context.Context, s *pgxstore.Store, tx pgx.Tx) error
		err     error
		effects int
	}{
		"nothing":       {func(context.Context, *pgxstore.Store, pgx.Tx) error { return nil }, nil, 0},
		"only an error": {func(context.Context, *pgxstore.Store, pgx.Tx) error { return undo }, undo, 0},
		"an effect": {
			func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error { return effect(ctx, tx, "e") },
			nil, 1,
		},
		"an effect, undone": {func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error {
			return errors.Join(effect(ctx, tx, "e"), undo)
		}, undo, 0},
		"the connection": {func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, `INSERT INTO effects VALUES ('e')`)
			return errors.Join(err, undo)
		}, undo, 0},
		"a savepoint": {func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return effect(ctx, tx, "e") })
		}, nil, 1},
		"a message": {func(ctx context.Context, s *pgxstore.Store, tx pgx.Tx) error {
			return errors.Join(s.Enqueue(ctx, tx, outbox.Message{ID: "m", Topic: "t"}), effect(ctx, tx, "e"))
		}, nil, 1},
		"only a message": {func(ctx context.Context, s *pgxstore.Store, tx pgx.Tx) error {
			return s.Enqueue(ctx, tx, outbox.Message{ID: "n", Topic: "t"})
		}, nil, 0},
		"a limit": {func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error {
			var limit string
			if err := tx.QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout')`).Scan(&limit); err != nil || limit != "5min" {
				return errors.Join(err, errors.New("the limit is "+limit))
			}
			return nil
		}, nil, 0},
		"Commit": {
			func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil },
			dedup.ErrTxEnded, 0,
		},
		"a swallowed error": {func(ctx context.Context, _ *pgxstore.Store, tx pgx.Tx) error {
			_, _ = effect(ctx, tx, "e"), second(tx.Exec(ctx, `SELECT 1/0`))
			return nil
		}, pgxstore.ErrSwallowed, 0},
	} {
		for _, recs := range []func(string) []dedup.Record{ordinaryRecord, redeliveredRecord} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := newOutboxDB(t, testdb.Postgres, 2)
				if err := db.store.InTx(t.Context(), ordinaryRecord("k"), doNothing); err != nil {
					t.Fatal(err)
				}
				err := db.store.InTx(t.Context(), recs("k"), func(tx pgx.Tx, claims []dedup.Claim) error {
					if claims[0].Verdict != dedup.Duplicate {
						t.Errorf("the verdict is %v", claims[0].Verdict)
					}
					return tt.fn(t.Context(), db.store, tx)
				})
				if !errors.Is(err, tt.err) {
					t.Errorf("InTx = %v, want %v", err, tt.err)
				}
				if got := len(db.strings(t, `SELECT name FROM effects`)); got != tt.effects {
					t.Errorf("%d effects, want %d", got, tt.effects)
				}
				want := 0
				if strings.HasSuffix(name, "a message") {
					want = 1
				}
				if got := len(db.strings(t, `SELECT id FROM outbox_messages`)); got != want {
					t.Errorf("%d messages, want %d", got, want)
				}
				if n := db.pool.Stat().AcquiredConns(); n != 0 && want == 0 {
					// a message wakes relays by another connection
					t.Errorf("%d connections are in use", n)
				}
			})
		}
	}
}

// The look before the claim finds only committed rows, so a redelivered message still waits for the transaction that
// handles its first copy.
func TestRedeliveredWhileTheFirstRuns(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 3)
	ctx := t.Context()
	undo := errors.New("undo")
	for want, end := range map[dedup.Verdict]error{dedup.Duplicate: nil, dedup.First: undo} {
		id := want.String()
		var verdict dedup.Verdict
		err := db.store.InTx(ctx, ordinaryRecord(id), func(pgx.Tx, []dedup.Claim) error {
			short := driver.WithClaimWait(ctx, 50*time.Millisecond)
			if err := db.store.InTx(short, redeliveredRecord(id), doNothing); !errors.Is(err, dedup.ErrInFlight) {
				t.Errorf("InTx beside the first = %v, want ErrInFlight", err)
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
		if err := db.store.InTx(ctx, redeliveredRecord(id), func(_ pgx.Tx, claims []dedup.Claim) error {
			verdict = claims[0].Verdict
			return nil
		}); err != nil || verdict != want {
			t.Errorf("after %v: %v, %v; want %v", end, verdict, err, want)
		}
	}
}

// A sweep deletes the row between the claim and the look at it, when the claim's transaction has ended.
func TestRowVanishesWithTheTransactionOfItsDuplicate(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	if err := db.store.InTx(t.Context(), ordinaryRecord("k"), doNothing); err != nil {
		t.Fatal(err)
	}
	cfg := db.pool.Config()
	once := &beforeBatch{do: func() { db.exec(t, testdb.Unguarded(`DELETE FROM processed_messages`)) }, with: "commit"}
	cfg.ConnConfig.Tracer = once
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStore(t, pgxstore.Config{Pool: pool})
	err = s.InTx(t.Context(), ordinaryRecord("k"), func(tx pgx.Tx, claims []dedup.Claim) error {
		if claims[0].Verdict != dedup.First {
			t.Errorf("the verdict is %v, want first", claims[0].Verdict)
		}
		return effect(t.Context(), tx, "e")
	})
	if err != nil || once.do != nil {
		t.Errorf("InTx = %v, row deleted: %v", err, once.do == nil)
	}
	if got := db.strings(t, `SELECT p.id FROM processed_messages p, effects e`); len(got) != 1 {
		t.Errorf("claims with effects: %v, want one", got)
	}
}

// beforeBatch calls do once, before a batch that holds the statement with.
type beforeBatch struct {
	roundTrips
	do   func()
	with string
}

func (b *beforeBatch) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	for _, q := range d.Batch.QueuedQueries {
		if q.SQL == b.with && b.do != nil {
			do := b.do
			b.do = nil
			do()
		}
	}
	return ctx
}

// The transaction of a batch ends early only if all of its keys had rows.
func TestBatchWithADuplicateRollsBack(t *testing.T) {
	db := newOutboxDB(t, testdb.Postgres, 2)
	if err := db.store.InTx(t.Context(), ordinaryRecord("old"), doNothing); err != nil {
		t.Fatal(err)
	}
	undo := errors.New("undo")
	for _, end := range []error{undo, nil} {
		recs := append(ordinaryRecord("old"), ordinaryRecord("new")...)
		err := db.store.InTx(t.Context(), recs, func(tx pgx.Tx, claims []dedup.Claim) error {
			if claims[0].Verdict != dedup.Duplicate || claims[1].Verdict != dedup.First {
				t.Errorf("verdicts %v, %v", claims[0].Verdict, claims[1].Verdict)
			}
			return errors.Join(effect(t.Context(), tx, "e"), end)
		})
		if !errors.Is(err, end) {
			t.Errorf("InTx = %v, want %v", err, end)
		}
	}
	if got := db.strings(t, `SELECT name FROM effects`); len(got) != 1 {
		t.Errorf("%d effects, want 1", len(got))
	}
}
