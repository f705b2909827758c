package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// A database that stops answering is at fault, and no message: whatever the statement, and however long ctx would wait.
func TestMySQLStopsAnswering(t *testing.T) {
	t.Parallel() // it waits
	one, batch := []dedup.Record{record("k")}, []dedup.Record{record("k"), record("l")}
	for _, test := range []struct {
		name, at  string
		recs      []dedup.Record
		committed bool
	}{
		{"the session", "set @txonce_was_autocommit", one, false},
		{"begin", "start transaction", one, false},
		{"the claim of one", "insert into", one, false},
		{"the claim of a batch", "insert into", batch, false},
		{"after the claim", "for update", one, false},
		{"the mark", "savepoint txonce", nil, false},
		{"the handler", "select 'handler'", one, false},
		{"the proof", "release savepoint", one, false},
		{"commit", "\x03commit", one, false},
		{"the session's end", "set autocommit = @txonce", one, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := openMySQL(t)
			cfg, err := mysql.ParseDSN(d.dsn)
			if err != nil {
				t.Fatal(err)
			}
			var l *link
			cfg.Addr, l = newLink(t, cfg.Addr)
			s := d.open(t, cfg.FormatDSN(), deduptest.Options{Wait: 100 * time.Millisecond})
			s.AnswerWithin(300 * time.Millisecond)
			claim(t, s, record("warm"))
			l.at.Store(&test.at)
			began := time.Now()
			err = s.InTx(t.Context(), test.recs, func(tx *sql.Tx, _ []dedup.Claim) error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := tx.ExecContext(ctx, `SELECT 'handler'`); err != nil {
					return fmt.Errorf("handler: %v", err) // as text
				}
				return nil
			})
			switch {
			case test.committed && err != nil:
				t.Errorf("InTx = %v, though COMMIT was answered", err)
			case !test.committed && (!s.Retryable(err) || errors.Is(err, dedup.ErrInFlight) || errors.Is(err, dedup.ErrTxEnded)):
				t.Errorf("InTx = %v, want a Retryable error", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			select {
			case <-l.frozen:
			default:
				t.Error("it never froze: this case tried nothing")
			}
		})
	}
}
