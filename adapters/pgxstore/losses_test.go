package pgxstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/observe"
)

// handled is a message that was acknowledged.
type handled struct{ began, ended time.Time }

// loop is a consumer whose messages come from a loop, so each comes once.
type loop struct {
	t      *testing.T
	c      *consumer.Consumer[pgx.Tx]
	losses chan observe.Loss

	mu   sync.Mutex
	next int
	done map[string]handled
}

func newLoop(t *testing.T, pool *pgxpool.Pool) *loop {
	t.Helper()
	l := &loop{t: t, losses: make(chan observe.Loss, 100), done: map[string]handled{}}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	l.c, err = consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			_, err := tx.Exec(ctx, `INSERT INTO effects (id) VALUES ($1)`, m.ID)
			return err
		},
		Trace: &consumer.Trace{WentBack: func(_ context.Context, loss observe.Loss) { l.losses <- loss }},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.c.Close)
	return l
}

func (l *loop) handle(ctx context.Context, id string) {
	began := time.Now()
	if err := l.c.Process(ctx, &consumer.Message{ID: id, Payload: []byte(id), Topic: "orders"}); err != nil {
		if ctx.Err() == nil {
			l.t.Errorf("Process(%s): %v", id, err)
		}
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done[id] = handled{began, time.Now()}
}

// run handles messages until ctx ends.
func (l *loop) run(ctx context.Context) (wait func()) {
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for ctx.Err() == nil {
				l.mu.Lock()
				l.next++
				id := fmt.Sprintf("m%06d", l.next)
				l.mu.Unlock()
				l.handle(ctx, id)
			}
		})
	}
	return workers.Wait
}

// more returns after n more messages were acknowledged.
func (l *loop) more(n int) {
	l.t.Helper()
	l.mu.Lock()
	want := len(l.done) + n
	l.mu.Unlock()
	await(l.t, fmt.Sprint(n, " more messages"), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.done) >= want
	})
}

// An asynchronous standby takes over that lacks the latest commits. The consumer, whose messages do not come again,
// reports the time that they are from; sent again, each has one effect. A restart before that is not reported.
func TestLostCommitsAreReportedAfterFailover(t *testing.T) {
	ctx := t.Context()
	primary := testdb.StartPostgres(t, "wal_level=replica", "max_wal_senders=10")
	setup, err := pgxpool.New(ctx, primary.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer setup.Close()
	if err := pgxstore.Migrate(ctx, setup, "public"); err != nil {
		t.Fatal(err)
	}
	if _, err := setup.Exec(ctx, `CREATE TABLE effects (id text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	standby := primary.StartStandby(t)
	pool, err := pgxpool.New(ctx, fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable"+
		"&target_session_attrs=read-write&connect_timeout=5", primary.Port, standby.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	l := newLoop(t, pool)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wait := l.run(ctx)

	l.more(100)
	primary.Kill()
	if err := primary.Start(ctx); err != nil {
		t.Fatal(err)
	}
	l.more(100)

	onStandby, err := pgx.Connect(ctx, standby.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer onStandby.Close(ctx)
	await(t, "the standby has the latest commits", func() bool {
		var n int
		return onStandby.QueryRow(ctx, `SELECT count(*) FROM effects`).Scan(&n) == nil && n > 150
	})
	for _, statement := range []string{`ALTER SYSTEM SET primary_conninfo = ''`, `SELECT pg_reload_conf()`} {
		if _, err := onStandby.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the standby receives nothing", func() bool {
		var none bool
		return onStandby.QueryRow(ctx, `SELECT NOT EXISTS (TABLE pg_stat_wal_receiver)`).Scan(&none) == nil && none
	})
	l.more(100)
	if len(l.losses) > 0 {
		t.Fatalf("a restart is reported: %+v", <-l.losses)
	}
	primary.Kill()
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	l.more(100)
	var loss observe.Loss
	select {
	case loss = <-l.losses:
	case <-time.After(time.Minute):
		t.Fatal("no loss is reported")
	}
	cancel()
	wait()

	ctx = t.Context()
	rows, err := pool.Query(ctx, `SELECT id FROM effects`)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, id := range ids {
		has[id] = true
	}
	lost, named := 0, int64(0)
	again := map[string]bool{}
	for id, h := range l.done {
		again[id] = !h.ended.Before(loss.From) && !h.began.After(loss.To)
		if again[id] {
			named++
		}
		if has[id] {
			continue
		}
		lost++
		if !again[id] {
			t.Errorf("%s was acknowledged at %v and is lost; reported %+v", id, h.ended, loss)
		}
	}
	if lost < 90 || loss.Messages < int64(lost) || loss.Messages > named {
		t.Errorf("%d messages are lost, and the report says %d at most, of %d in that time", lost, loss.Messages, named)
	}
	for id, send := range again {
		if send {
			l.handle(ctx, id)
		}
	}
	var all, distinct, reports int
	if err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT id), (SELECT count(*) FROM source_positions
		WHERE source = 'acknowledged messages' AND rewound_at IS NOT NULL) FROM effects`).
		Scan(&all, &distinct, &reports); err != nil {
		t.Fatal(err)
	}
	if all != distinct || all < len(l.done) || reports != 1 || len(l.losses) > 0 {
		t.Errorf("%d messages have %d effects, %d distinct; %d reports in the database, %d more hooks", len(l.done), all, distinct,
			reports, len(l.losses))
	}
}
