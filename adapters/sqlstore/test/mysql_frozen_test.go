package sqlstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// If the database stops answering, the error is the database's and not the message's, whatever the statement was. The
// wait ends even if ctx has no deadline.
func TestMySQLStopsAnswering(t *testing.T) {
	t.Parallel() // this test mostly waits
	for _, test := range []struct {
		name, at  string
		recs      int
		committed bool
	}{
		{"the session", "set @txonce_was_settings", 1, false},
		{"begin", "start transaction", 1, false},
		{"the claim of one", "insert into", 1, false},
		{"the claim of a batch", "insert into", 2, false},
		{"after the claim", "for update", 1, false},
		{"the mark", "savepoint txonce", 0, false},
		{"the handler", "select 'handler'", 1, false},
		{"the proof", "release savepoint", 1, false},
		{"commit", "\x03commit", 1, false},
		{"the session's end", "set autocommit = if(@txonce", 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := openMySQL(t)
			cfg, err := mysql.ParseDSN(d.dsn)
			if err != nil {
				t.Fatal(err)
			}
			var l *link
			cfg.Addr, l = newLink(t, cfg.Addr)
			if test.committed {
				l.behind = "\x03commit" // a failed attempt sends the same text at its end
			}
			s := d.open(t, cfg.FormatDSN(), deduptest.Options{Wait: 100 * time.Millisecond})
			err = l.meet(t, s, test.at, test.recs)
			switch {
			case test.committed && err != nil:
				t.Errorf("InTx = %v, though COMMIT was answered", err)
			case !test.committed && (!s.Retryable(err) || errors.Is(err, dedup.ErrInFlight) ||
				errors.Is(err, dedup.ErrTxEnded)):
				t.Errorf("InTx = %v, want a Retryable error", err)
			}
		})
	}
}
