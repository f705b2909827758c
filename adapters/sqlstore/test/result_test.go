package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// The metrics of a consumer tell deadlocks from other failures. deduptest checks lost answers to COMMIT.
func TestResult(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		deadlocks := map[string][]string{ // statements that fail as if this transaction were the victim
			"postgres": {raise("40P01"), raise("40001")}, // the next test has a real one on MariaDB
		}
		others := map[string][]string{
			"postgres": {raise("P0001"), raise("23505")},
			// it has not ended the transaction
			"mysql": {
				`SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 1644`,
				`SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213`,
			},
			"sqlite": {`SELECT * FROM missing`},
		}
		s := db.open(deduptest.Options{})
		var classifier driver.FaultClassifier = s
		for want, statements := range map[observe.Result][]string{
			observe.Deadlock:   deadlocks[db.dialect],
			observe.RolledBack: others[db.dialect],
		} {
			for i, statement := range statements {
				err := s.InTx(t.Context(), []dedup.Record{record(fmt.Sprint(want, i))}, func(tx *sql.Tx, _ []dedup.Claim) error {
					_, err := tx.ExecContext(t.Context(), statement)
					return err
				})
				if got := classifier.Result(err); got != want {
					t.Errorf("%s: %v is %q, want %q", statement, err, got, want)
				}
			}
		}
		if got := classifier.Result(errUndo); got != observe.RolledBack {
			t.Errorf("a handler's own error is %q", got)
		}
		if got := classifier.Result(nil); got != observe.Committed {
			t.Errorf("no error is %q", got)
		}
	})
}

func TestMySQLResultOfADeadlock(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
		return d.deadlock(context.WithoutCancel(t.Context()), tx)
	})
	if got := s.Result(err); got != observe.Deadlock {
		t.Errorf("%v is %q, want %q", err, got, observe.Deadlock)
	}
}

func raise(code string) string {
	return fmt.Sprintf(`DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '%s'; END $$`, code)
}
