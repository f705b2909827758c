package verdicts_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Many handlers write to one row, and the database cuts those that wait for it, with any of its limits, or makes them
// lose a race. That is no message's fault: all are committed, and none is parked.
func TestAHotRowParksNothing(t *testing.T) {
	const hold = 30 * time.Millisecond
	pg18 := func(t *testing.T) *database { return postgresOn(t, testdb.Postgres18(t)) }
	pg15 := func(t *testing.T) *database { return postgresOn(t, testdb.Postgres(t)) }
	pgx18 := func(t *testing.T) *database { return pgxOn(t, testdb.Postgres18(t)) }
	for _, tc := range []struct {
		name      string
		open      func(t *testing.T) *database
		session   string
		isolation sql.IsolationLevel
		workers   int
		messages  int
		hold      time.Duration
	}{
		{"statement_timeout, pgxstore", pgx18, "&statement_timeout=100", 0, 16, 100, hold},
		{"statement_timeout, sqlstore", pg15, "&statement_timeout=100", 0, 16, 100, hold},
		{"lock_timeout, sqlstore", pg18, "&lock_timeout=100", 0, 16, 100, hold},
		{"transaction_timeout, pgxstore", pgx18, "&transaction_timeout=150", 0, 16, 60, hold},
		{"transaction_timeout, sqlstore", pg18, "&transaction_timeout=150", 0, 16, 60, hold},
		{"serializable, pgxstore", pgx18, "", sql.LevelSerializable, 60, 400, 0},
		{"serializable, sqlstore", pg15, "", sql.LevelSerializable, 60, 400, 0},
		{"repeatable read, sqlstore", pg18, "", sql.LevelRepeatableRead, 60, 400, 0},
		{"max_statement_time, MariaDB", mysqlOn, "max_statement_time=0.1", 0, 16, 60, hold},
		{"innodb_lock_wait_timeout, MariaDB", mysqlOn, "innodb_lock_wait_timeout=1", 0, 16, 24, 300 * time.Millisecond},
		{"serializable, MariaDB", mysqlOn, "", sql.LevelSerializable, 60, 400, 0},
		{"innodb_lock_wait_timeout, MySQL", mysqlOn, "innodb_lock_wait_timeout=1", 0, 16, 24, 300 * time.Millisecond},
		{"serializable, MySQL", mysqlOn, "", sql.LevelSerializable, 60, 400, 0},
		{"busy, SQLite", sqlite, "&_pragma=busy_timeout(20)", 0, 16, 60, hold},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := tc.open(t)
			handle := func(ctx context.Context, run exec, m *consumer.Message) error {
				if err := run(`UPDATE hot SET n = n + 1 WHERE id = 1`); err != nil {
					return err
				}
				if err := pause(ctx, tc.hold); err != nil {
					return err
				}
				return run(`INSERT INTO effects (name) VALUES (`+d.mark(1)+`)`, m.ID)
			}
			vary := settings{session: tc.session, isolation: tc.isolation}
			workers := []worker{d.start(t, handle, vary), d.start(t, handle, vary)} // as in two processes
			var msgs []*consumer.Message
			for i := range tc.messages {
				msgs = append(msgs, message(fmt.Sprint("m", i)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			if err := process(ctx, workers, tc.workers/2, msgs); err != nil {
				t.Error(err)
			}
			parked := letters(t, workers[0])
			for _, m := range msgs {
				if n := d.effects(t, m.ID); n != 1 && parked[m.ID] == "" {
					t.Errorf("%s has %d effects", m.ID, n)
				}
			}
			if len(parked) > 0 {
				t.Errorf("%d of %d messages are parked: %v", len(parked), len(msgs), parked)
			}
		})
	}
}
