package verdicts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// A handler that is too slow for one of the database's limits of time meets it each time, in a process where nothing
// else comes. It is parked in the end.
func TestAHandlerThatIsTooSlowIsParkedAlone(t *testing.T) {
	pgx18 := func(t *testing.T) *database { return pgxOn(t, testdb.Postgres18(t)) }
	pg18 := func(t *testing.T) *database { return postgresOn(t, testdb.Postgres18(t)) }
	statement := func(query string) handler {
		return func(_ context.Context, run exec, _ *consumer.Message) error { return run(query) }
	}
	waits := func(d time.Duration, after string) handler {
		return func(ctx context.Context, run exec, m *consumer.Message) error {
			if err := run(`INSERT INTO effects (name) VALUES ('` + m.ID + `')`); err != nil {
				return err
			}
			if err := pause(ctx, d); err != nil || after == "" {
				return err
			}
			return run(after)
		}
	}
	// SLEEP is not interrupted with an error
	const heavy = `SELECT count(*) FROM information_schema.columns AS a, information_schema.columns AS b, information_schema.columns AS c`
	for _, tc := range []struct {
		name    string
		open    func(t *testing.T) *database
		session string
		idle    time.Duration
		handle  handler
		cause   string
	}{
		{"statement_timeout, pgxstore", pgx18, "&statement_timeout=100", 0, statement(`SELECT pg_sleep(1)`), "57014"},
		{"statement_timeout, sqlstore", pg18, "&statement_timeout=100", 0, statement(`SELECT pg_sleep(1)`), "57014"},
		{"statement_timeout of the handler, pgxstore", pgx18, "", 0, func(_ context.Context, run exec, _ *consumer.Message) error {
			if err := run(`SET LOCAL statement_timeout = 100`); err != nil {
				return err
			}
			return run(`SELECT pg_sleep(1)`)
		}, "57014"},
		{
			"transaction_timeout before a statement, pgxstore", pgx18, "&transaction_timeout=150", 0,
			waits(300*time.Millisecond, `SELECT 1`), "25P04",
		},
		{
			"transaction_timeout before a statement, sqlstore", pg18, "&transaction_timeout=150", 0,
			waits(300*time.Millisecond, `SELECT 1`), "25P04",
		},
		{
			"transaction_timeout before COMMIT, pgxstore", pgx18, "&transaction_timeout=150", 0,
			waits(300*time.Millisecond, ""), "25P04",
		},
		{
			"transaction_timeout before COMMIT, sqlstore", pg18, "&transaction_timeout=150", 0,
			waits(300*time.Millisecond, ""), "25P04",
		},
		{
			"transaction_timeout in a statement, pgxstore", pgx18, "&transaction_timeout=150", 0,
			statement(`SELECT pg_sleep(1)`), "25P04",
		},
		{"idle, pgxstore", pgx18, "", 200 * time.Millisecond, waits(400*time.Millisecond, `SELECT 1`), "25P03"},
		{"idle before COMMIT, pgxstore", pgx18, "", 200 * time.Millisecond, waits(400*time.Millisecond, ""), "25P03"},
		{"idle, sqlstore", pg18, "", 200 * time.Millisecond, waits(400*time.Millisecond, `SELECT 1`), "25P03"},
		{"max_statement_time, MariaDB", mysqlOn, "max_statement_time=0.1", 0, statement(heavy), "1969"},
		{"idle, MariaDB", mysqlOn, "", time.Second, waits(1500*time.Millisecond, `SELECT 1`), "IdleInTxTimeout"},
		{"max_execution_time, MySQL", mysqlOn, "max_execution_time=100", 0, statement(heavy), "3024"},
		{"idle, MySQL", mysqlOn, "", time.Second, waits(1500*time.Millisecond, `SELECT 1`), "4031"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d, log := tc.open(t), &strings.Builder{}
			w := d.start(t, tc.handle, settings{session: tc.session, idle: tc.idle, backoff: func(int) time.Duration { return 5 * time.Millisecond }, log: log})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := w.Process(ctx, message("slow")); err != nil {
				t.Errorf("not parked: %v\n%s", err, log)
			}
			if cause := letters(t, w)["slow"]; !strings.HasPrefix(cause, "exhausted: ") ||
				!strings.Contains(cause, tc.cause) || d.effects(t, "slow") > 0 {
				t.Errorf("parked as %q, %d effects; want %s\n%s", cause, d.effects(t, "slow"), tc.cause, log)
			}
		})
	}
}

// Another session holds the table for longer than the limit of time, again and again, in a process where nothing else
// comes. That parks nothing.
func TestATableThatIsLockedParksNothing(t *testing.T) {
	for _, tc := range []struct {
		name    string
		open    func(t *testing.T) *database
		session string
		lock    []string
		unlock  string
	}{
		{
			"statement_timeout, pgxstore", func(t *testing.T) *database { return pgxOn(t, testdb.Postgres18(t)) },
			"&statement_timeout=100",
			[]string{`BEGIN`, `LOCK TABLE effects`},
			`COMMIT`,
		},
		{
			"transaction_timeout, sqlstore", func(t *testing.T) *database { return postgresOn(t, testdb.Postgres18(t)) },
			"&transaction_timeout=100",
			[]string{`BEGIN`, `LOCK TABLE effects`},
			`COMMIT`,
		},
		{
			"lock_timeout, sqlstore", func(t *testing.T) *database { return postgresOn(t, testdb.Postgres(t)) },
			"&lock_timeout=50",
			[]string{`BEGIN`, `LOCK TABLE effects`},
			`COMMIT`,
		},
		{
			"max_statement_time, MariaDB", mysqlOn, "max_statement_time=0.1",
			[]string{`LOCK TABLES effects WRITE`},
			`UNLOCK TABLES`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := tc.open(t)
			runs := 0
			w := d.start(t, func(_ context.Context, run exec, m *consumer.Message) error {
				runs++
				return run(`INSERT INTO effects (name) VALUES ('` + m.ID + `')`)
			}, settings{session: tc.session, backoff: func(int) time.Duration { return 5 * time.Millisecond }})
			conn, err := d.admin.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, q := range tc.lock {
				if _, err := conn.ExecContext(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			if err := w.Process(ctx, message("1")); err == nil || runs < 20 {
				t.Errorf("with the table locked: %v after %d runs, letters %v", err, runs, letters(t, w))
			}
			if _, err := conn.ExecContext(t.Context(), tc.unlock); err != nil {
				t.Fatal(err)
			}
			if err := w.Process(t.Context(), message("1")); err != nil || d.effects(t, "1") != 1 ||
				len(letters(t, w)) > 0 {
				t.Errorf("afterwards: %v, %d effects, letters %v", err, d.effects(t, "1"), letters(t, w))
			}
		})
	}
}

// When every message exceeds a limit of time, the database may be too busy: the consumer pauses, and nothing is parked.
func TestADatabaseThatIsSlowForAllParksNothing(t *testing.T) {
	t.Parallel()
	d := pgxOn(t, testdb.Postgres18(t))
	w := d.start(t, func(_ context.Context, run exec, _ *consumer.Message) error { return run(`SELECT pg_sleep(1)`) },
		settings{session: "&statement_timeout=20", backoff: func(int) time.Duration { return 5 * time.Millisecond }})
	var msgs []*consumer.Message
	for i := range 8 {
		msgs = append(msgs, message(fmt.Sprint("m", i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := process(ctx, []worker{w}, 8, msgs); err == nil {
		t.Error("all are decided")
	}
	if parked := letters(t, w); len(parked) > 0 {
		t.Errorf("%d parked: %v", len(parked), parked)
	}
}
