package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/testdb"
	"github.com/txonce/txonce/outbox"
)

// turning is a session on an outbox whose generations turn with each Tidy that can.
type turning struct {
	*outboxDB
	outbox.Session
}

func newTurning(t *testing.T, server func(testing.TB) string) *turning {
	t.Helper()
	return newTurningOn(t, newOutboxDB(t, server, 8))
}

func newTurningOn(t *testing.T, db *outboxDB) *turning {
	t.Helper()
	db.store = newStore(t, pgxstore.Config{
		Pool: db.pool, AllowAsyncCommit: true, Outbox: pgxstore.OutboxConfig{Mode: pgxstore.OutboxRotating, RotateEvery: 1},
	})
	s, err := db.store.Open(t.Context(), outbox.SessionOptions{Name: t.Name(), TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	err = again(db.store, func() error {
		_, err := s.Renew(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return &turning{db, s}
}

func (d *turning) enqueue(tb testing.TB, ids ...string) {
	tb.Helper()
	err := again(d.store, func() error {
		return pgx.BeginFunc(tb.Context(), d.pool, func(tx pgx.Tx) error {
			return d.store.Enqueue(tb.Context(), tx, messages(ids...)...)
		})
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// tryEnqueue waits for locks for as long as Tidy may make it wait, and some time for the machine.
func (d *turning) tryEnqueue(ctx context.Context, id string) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '20s'`); err != nil {
			return err
		}
		return d.store.Enqueue(ctx, tx, message(id))
	})
}

func (d *turning) begin(tb testing.TB, ids ...string) pgx.Tx {
	tb.Helper()
	tx, err := d.pool.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if err := d.store.Enqueue(tb.Context(), tx, messages(ids...)...); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(tb.Context())) })
	return tx
}

func (d *turning) tidy(tb testing.TB) {
	tb.Helper()
	if err := d.tryTidy(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func (d *turning) tryTidy(ctx context.Context) error {
	return again(d.store, func() error { return d.Session.(outbox.Tidier).Tidy(ctx) })
}

func (d *turning) lease(tb testing.TB) []outbox.Leased {
	tb.Helper()
	var leased []outbox.Leased
	err := again(d.store, func() (err error) {
		leased, err = d.Lease(tb.Context(), outbox.Want{Limit: 1000})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return leased
}

// until tidies until done.
func (d *turning) until(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	for began := time.Now(); !done(); {
		if d.tidy(tb); time.Since(began) > 2*time.Minute {
			tb.Fatalf("did not happen: %s; generations %v", what, d.sizes(tb))
		}
	}
}

func (d *turning) sizes(tb testing.TB) (sizes []int64) {
	tb.Helper()
	for g := range 4 {
		var n int64
		if err := d.pool.QueryRow(tb.Context(), `SELECT pg_relation_size($1::text::regclass)`, fmt.Sprintf("outbox_messages_%d", g)).Scan(&n); err != nil {
			tb.Fatal(err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

func (d *turning) current(tb testing.TB) (g int) {
	tb.Helper()
	if err := d.pool.QueryRow(tb.Context(), `SELECT last_value FROM outbox_generation`).Scan(&g); err != nil {
		tb.Fatal(err)
	}
	return g
}

func settle(tb testing.TB, d *turning, v outbox.Verdict, leased ...outbox.Leased) {
	tb.Helper()
	outcomes := make([]outbox.Outcome, len(leased))
	for i, l := range leased {
		outcomes[i] = outbox.Outcome{Leased: l, Verdict: v, Cause: errors.New("refused"), Delay: time.Hour}
	}
	d.settle(tb, outcomes...)
}

func (d *turning) settle(tb testing.TB, outcomes ...outbox.Outcome) {
	tb.Helper()
	if err := again(d.store, func() error { return d.Settle(tb.Context(), outcomes) }); err != nil {
		tb.Fatal(err)
	}
}

func leasedIDs(leased []outbox.Leased) (ids []string) {
	for _, l := range leased {
		ids = append(ids, l.ID)
	}
	return ids
}

// Hazard 32: a message that is committed while a generation is about to be emptied is not lost. Emptying waits for its
// transaction here, at the moment of which a check without the lock would have seen nothing.
func TestOutboxRotationKeepsLateCommits(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newTurning(t, server)
		tx := d.begin(t, "late")
		d.until(t, "another generation takes what comes", func() bool { return d.current(t) != 0 })

		stop := make(chan struct{})
		tidied := make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					tidied <- nil
					return
				default:
				}
				if err := d.tryTidy(t.Context()); err != nil {
					tidied <- err
					return
				}
			}
		}()
		// By and by it waits for up to 150 ms. Then, at the beginning of such a wait, the late message is committed.
		d.awaitLockFor(t, 100*time.Millisecond, time.Minute)
		d.awaitLockFor(t, 2*time.Millisecond, 30*time.Millisecond)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		close(stop)
		if err := <-tidied; err != nil {
			t.Fatal(err)
		}
		d.until(t, "the old generation is empty", func() bool { return d.current(t) == 0 || d.sizes(t)[0] == 0 })
		d.want(t, "late")
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"late"}) {
			t.Errorf("leased %v, want the late commit", got)
		}
	})
}

// awaitLockFor waits until somebody has waited for generation 0 for so long.
func (d *turning) awaitLockFor(t *testing.T, least, most time.Duration) {
	t.Helper()
	for began, waiting := time.Now(), false; !waiting; {
		err := d.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'outbox_messages_0'::regclass
			AND mode = 'AccessExclusiveLock' AND NOT granted
			AND clock_timestamp() - waitstart BETWEEN $1::float8 * interval '1 second' AND $2::float8 * interval '1 second')`,
			least.Seconds(), most.Seconds()).Scan(&waiting)
		if err != nil || time.Since(began) > 5*time.Minute {
			t.Fatalf("nobody waits for the generation: %v", err)
		}
	}
}

// Settle looks where messages were when they were leased, and everywhere for those that have moved since.
func TestOutboxSettleFindsWhatMoved(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		for _, moved := range []string{`false`, `id = 'b'`, `id <> 'b'`, `true`} {
			t.Run(moved, func(t *testing.T) {
				d := newTurning(t, server)
				d.enqueue(t, "a", "b", "c")
				leased := d.lease(t)
				d.exec(t, `UPDATE outbox_messages SET generation = (generation + 1) % 4 WHERE `+moved)
				settle(t, d, outbox.Sent, leased...)
				d.want(t)
			})
		}
	})
}

// What is held back, and what is leased, survives in another generation as it was.
func TestOutboxRotationMovesSurvivors(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newTurning(t, server)
		d.enqueue(t, "held", "behind")
		leased := d.lease(t)
		settle(t, d, outbox.Deferred, leased[0])
		settle(t, d, outbox.Returned, leased[1])
		d.enqueue(t, "more")
		err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
			return d.store.Enqueue(t.Context(), tx, outbox.Message{ID: "flying", Topic: "events", Key: "other"})
		})
		if err != nil {
			t.Fatal(err)
		}
		flying := d.lease(t)
		row := `SELECT string_agg(format('%s %s %s %s', seq, id, attempts, cause), ', ' ORDER BY seq) FROM outbox_messages`
		before := d.strings(t, row)
		d.until(t, "the generation with survivors is empty", func() bool { return d.current(t) != 0 && d.sizes(t)[0] == 0 })
		if after := d.strings(t, row); !slices.Equal(before, after) {
			t.Errorf("survivors are %v, were %v", after, before)
		}
		settle(t, d, outbox.Sent, flying...) // moved while it was on its way to the broker
		d.want(t, "held", "behind", "more")
		d.exec(t, `UPDATE outbox_held SET until = clock_timestamp()`)
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"held", "behind", "more"}) {
			t.Errorf("leased %v, want all in their old order", got)
		}
	})
}

// A transaction that is open on one generation delays the emptying of that one only, and stalls no other writer for long.
func TestOutboxRotationGoesOnBesideAnOpenWriter(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newTurning(t, server)
		tx := d.begin(t, "open")
		turns := map[int]int{}
		for i, began := 0, time.Now(); i < 20 || turns[1] < 2 || turns[2] < 2 || turns[3] < 2; i++ {
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("generations %v took what came: want 1 to 3 in turn", turns)
			}
			before := d.current(t)
			stalled := make(chan error, 1)
			go func() { stalled <- d.tryEnqueue(t.Context(), fmt.Sprint(i)) }()
			d.tidy(t) // beside the writer, and waits for generation 0 in vain
			if err := <-stalled; err != nil {
				t.Fatalf("a writer: %v", err)
			}
			settle(t, d, outbox.Sent, d.lease(t)...)
			if now := d.current(t); now != before {
				turns[now]++
			}
		}
		if turns[0] > 0 || d.sizes(t)[0] == 0 {
			t.Errorf("generation 0 took what came %d times, and has %d bytes; want it left alone", turns[0], d.sizes(t)[0])
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"open"}) {
			t.Errorf("leased %v, want what was committed late into the old generation", got)
		}
	})
}

// A Lease begins behind what is gone; but not behind what may yet be committed with a smaller seq.
func TestOutboxLeaseFindsLateCommitsBehindWhatIsGone(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newTurning(t, server)
		tx := d.begin(t, "late")
		for i := range 8 {
			d.enqueue(t, fmt.Sprint(i)) // of the same shard
			settle(t, d, outbox.Sent, d.lease(t)...)
			pause(25 * time.Millisecond)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"late"}) {
			t.Errorf("leased %v, want the late commit", got)
		}
	})
}

// What comes back from the parking lot has an old seq, and is found at once, before later messages of its key.
func TestOutboxLeaseFindsWhatComesBack(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newTurning(t, server)
		d.enqueue(t, "head", "follower")
		leased := d.lease(t)
		d.settle(t, outbox.Outcome{Leased: leased[0], Verdict: outbox.Parked, Cause: errors.New("refused")},
			outbox.Outcome{Leased: leased[1], Verdict: outbox.Returned})
		for range 6 {
			if got := d.lease(t); len(got) > 0 {
				t.Fatalf("leased %v behind a parked message", leasedIDs(got))
			}
			pause(25 * time.Millisecond)
		}
		if err := unpark(t.Context(), d.store, leased[0].Seq); err != nil {
			t.Fatal(err)
		}
		d.enqueue(t, "later")
		if got := leasedIDs(d.lease(t)); !slices.Equal(got, []string{"head", "follower", "later"}) {
			t.Errorf("leased %v, want the old order", got)
		}
	})
}

// With statistics of an empty table, PostgreSQL would begin a join with the table.
func TestOutboxSettlesAtOnceThoughStatisticsAreOld(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		dsn := testdb.Schema(t, server(t)) + "&synchronous_commit=off" // the disk's time is not the point
		d := newTurningOn(t, newOutboxDBAt(t, dsn, 8))
		fill := `INSERT INTO outbox_messages (shard, id, topic, key, payload) SELECT i % 64, i::text, 'events', convert_to(i::text, 'UTF8'), '' FROM generate_series(1, 40000) AS i`
		d.exec(t, fill)
		open, err := d.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}) // keeps the dead rows
		if err != nil {
			t.Fatal(err)
		}
		defer open.Rollback(t.Context())
		if _, err := open.Exec(t.Context(), `SELECT FROM effects`); err != nil {
			t.Fatal(err)
		}
		d.exec(t, `DELETE FROM outbox_messages`)
		d.exec(t, `ANALYZE outbox_messages`)
		d.exec(t, fill)
		fastest := time.Hour // a machine that stands still for a while slows down some of them
		for range 10 {
			leased := d.lease(t)
			began := time.Now()
			settle(t, d, outbox.Sent, leased...)
			fastest = min(fastest, time.Since(began))
		}
		if fastest > time.Second {
			t.Errorf("settling 1000 messages took %v", fastest)
		}
	})
}

func pause(d time.Duration) { <-time.After(d) }
