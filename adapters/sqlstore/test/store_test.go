package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestNewNamesTheField(t *testing.T) {
	db, one := openDB(t, "sqlite", ":memory:"), openDB(t, "sqlite", ":memory:")
	one.SetMaxOpenConns(1)
	for field, cfg := range map[string]sqlstore.Config{
		"Config.DB":           {Dialect: sqlstore.SQLite},
		"Config.Dialect":      {DB: db, Dialect: "oracle"},
		"Config.Schema":       {DB: db, Dialect: sqlstore.Postgres, Schema: `a"b`},
		"SQLite has none":     {DB: db, Dialect: sqlstore.SQLite, Schema: "app"},
		"Config.ClaimTimeout": {DB: db, Dialect: sqlstore.SQLite, ClaimTimeout: time.Microsecond},
		"ClaimTimeout -1s":    {DB: db, Dialect: sqlstore.SQLite, ClaimTimeout: -time.Second},
		"always serializable": {DB: db, Dialect: sqlstore.SQLite, Isolation: sql.LevelReadCommitted},
		"Config.Isolation":    {DB: db, Dialect: sqlstore.Postgres, Isolation: sql.LevelSnapshot},
		"at least 2":          {DB: one, Dialect: sqlstore.Postgres, Isolation: sql.LevelSerializable},
	} {
		if _, err := sqlstore.New(cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("New with an invalid %s: %v", field, err)
		}
	}
}

// A network error or io.ErrUnexpectedEOF from a handler is not the database's: another service or a parser may have
// returned it.
func TestRetryableOfErrorsWithoutACode(t *testing.T) {
	s := newNode(t, openDB(t, "sqlite", ":memory:"), sqlstore.Config{Dialect: sqlstore.SQLite})
	for _, test := range []struct {
		err  error
		want bool
	}{
		{driver.ErrBadConn, true},
		{sql.ErrConnDone, true},
		{sql.ErrNoRows, false},
		{sql.ErrTxDone, false},
		{io.ErrUnexpectedEOF, false},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, false},
		{codeError(5), false},
	} {
		if got := s.Retryable(test.err); got != test.want {
			t.Errorf("Retryable(%v) = %v", test.err, got)
		}
	}
}

// codeError is an error of another package that resembles SQLite's errors.
type codeError int

func (e codeError) Error() string { return "no such table" }
func (e codeError) Code() int     { return int(e) }

// Databases store times in microseconds. A row's expiry must be rounded up, never down.
func TestTimesAreRoundedUpInTheTable(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		r := record("k")
		r.Time = time.Now().Add(30 * time.Minute).Truncate(time.Microsecond).Add(1)
		r.Window = 2*time.Hour + 1
		claim(t, s, r)
		c, found, err := s.Lookup(t.Context(), r.Key)
		if err != nil || !found {
			t.Fatal(found, err)
		}
		if want := r.Time.Add(r.Window); c.ExpiresAt.Before(want) || c.ExpiresAt.Sub(want) > 2*time.Microsecond {
			t.Errorf("expires at %v, want %v or just after it", c.ExpiresAt, want)
		}
	})
}

func windows(t *testing.T, db fixture) int {
	t.Helper()
	return db.count(t, `SELECT count(*) FROM txonce_windows WHERE consumer = 'billing'`)
}

// A registration that rolls back with the caller's transaction must not be remembered as done.
func TestARegistrationOutlivesTheTransactionThatNeededIt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		for range 2 {
			err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
				if _, err := s.Claim(t.Context(), tx, []dedup.Record{record("k")}); err != nil {
					return err
				}
				return errUndo
			})
			if !errors.Is(err, errUndo) {
				t.Fatal(err)
			}
		}
		err := inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
			_, err := s.Claim(t.Context(), tx, []dedup.Record{record("k")})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := windows(t, db); n != 1 {
			t.Errorf("after a claim that committed in the caller's transaction: %d windows registered", n)
		}
		claim(t, s, record("l"))
		if n := windows(t, db); n != 1 {
			t.Errorf("after InTx: %d windows registered", n)
		}
	})
}

// A claim made after the registration expired is undone before its handler runs, and made again under a new
// registration.
func TestAClaimAfterItsRegistrationRanOut(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		claim(t, s, record("warm"))
		usedUntil := `SELECT count(*) FROM txonce_windows WHERE used_until > ` + db.clock
		exec(t, db.DB, `UPDATE txonce_windows SET used_until = first_run`)
		s.RunOut(record("k"), time.Now().Add(-time.Minute))
		runs := 0
		err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(_ *sql.Tx, c []dedup.Claim) error {
			runs++
			if c[0].Verdict != dedup.First {
				t.Errorf("verdict %v", c[0].Verdict)
			}
			if n := db.count(t, usedUntil); n != 1 {
				t.Errorf("%d windows in use when the handler runs", n)
			}
			return nil
		})
		if err != nil || runs != 1 {
			t.Errorf("handler ran %d times, error %v", runs, err)
		}

		exec(t, db.DB, `UPDATE txonce_windows SET used_until = first_run`)
		s.RunOut(record("l"), time.Now().Add(-time.Minute))
		own := func() error {
			return inTx(t.Context(), s.db, nil, func(tx *sql.Tx) error {
				_, err := s.Claim(t.Context(), tx, []dedup.Record{record("l")})
				return err
			})
		}
		if err := own(); !s.Retryable(err) {
			t.Errorf("in the caller's transaction: %v, want a Retryable error", err)
		}
		if err := own(); err != nil {
			t.Errorf("the second attempt: %v", err)
		}
		if n := db.count(t, usedUntil); n != 1 {
			t.Errorf("%d windows in use after it", n)
		}
	})
}

// If the pool has no free connection, InTx waits for at most ctx's deadline.
func TestInTxWaitsForAConnectionNoLongerThanCtx(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		claim(t, s, record("warm"))
		s.db.SetMaxOpenConns(1)
		conn, err := s.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = s.InTx(ctx, []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) || !s.Retryable(err) {
			t.Errorf("got %v, retryable %v", err, s.Retryable(err))
		}
	})
}

// InTx returns the handler's error, and adds what the handler could not know.
func TestHandlersErrorTellsOfItsLostTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		own := errors.New("no such account")
		for name, do := range map[string]func(tx *sql.Tx) error{
			"Commit":   func(tx *sql.Tx) error { return tx.Commit() },
			"COMMIT":   func(tx *sql.Tx) error { _, err := tx.Exec(`COMMIT`); return err },
			"ROLLBACK": func(tx *sql.Tx) error { _, err := tx.Exec(`ROLLBACK`); return err },
		} {
			err := s.InTx(t.Context(), []dedup.Record{record(name)}, func(tx *sql.Tx, _ []dedup.Claim) error {
				if err := do(tx); err != nil {
					t.Error(err)
				}
				return own
			})
			// nothing written afterwards is committed, as after a deadlock
			gone := db.dialect == "mysql" && name == "ROLLBACK"
			if !errors.Is(err, own) || errors.Is(err, dedup.ErrTxEnded) == gone {
				t.Errorf("%s: %v, want the handler's error, and ErrTxEnded: %v", name, err, !gone)
			}
		}
		err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(*sql.Tx, []dedup.Claim) error { return own })
		if err != own {
			t.Errorf("%v: want the handler's error unchanged", err)
		}
	})
}

// InTx also verifies a transaction without a new claim: that of a duplicate, or one that parks a message.
func TestEndedTransactionIsFoundWithoutAClaim(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		claim(t, s, record("k"))
		for _, recs := range [][]dedup.Record{nil, {record("k")}} {
			for _, statements := range [][]string{{`COMMIT`}, {`COMMIT`, `BEGIN`}, {`ROLLBACK`}} {
				err := s.InTx(t.Context(), recs, func(tx *sql.Tx, _ []dedup.Claim) error {
					for _, q := range statements {
						if _, err := tx.Exec(q); err != nil {
							t.Error(err)
						}
					}
					return nil
				})
				if !errors.Is(err, dedup.ErrTxEnded) {
					t.Errorf("%d records, handler sent %v: %v, want ErrTxEnded", len(recs), statements, err)
				}
			}
		}
	})
}

func TestFingerprintsOfAllBits(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		prints := []dedup.Fingerprint{
			{0x80},
			{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			{7: 1},
			{0: 0x80, 7: 1},
		}
		var recs []dedup.Record
		for i, f := range prints {
			r := record(fmt.Sprint(i))
			r.Fingerprint = f
			recs = append(recs, r)
		}
		claim(t, s, recs...)
		for i, c := range claim(t, s, recs...) {
			if c.Verdict != dedup.Duplicate || c.Fingerprint != prints[i] {
				t.Errorf("%x came back as %x (%v)", prints[i], c.Fingerprint, c.Verdict)
			}
		}
	})
}
