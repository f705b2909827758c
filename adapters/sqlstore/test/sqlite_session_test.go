package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// sqliteLeftovers are statements that make a connection lose or refuse other handlers' writes.
var sqliteLeftovers = []string{
	`CREATE TEMP TABLE effects (name TEXT)`,
	`CREATE TEMP VIEW effects AS SELECT 'hidden' AS name`,
	`CREATE TEMP TRIGGER lost BEFORE INSERT ON effects BEGIN SELECT RAISE(IGNORE); END`,
	`PRAGMA query_only = 1`,
	`PRAGMA max_page_count = 1`,
	`PRAGMA locking_mode = exclusive`,
}

// sqliteWrite is an effect that needs a new page of the file.
const sqliteWrite = `INSERT INTO effects (name) SELECT ? UNION ALL SELECT hex(zeroblob(20000))`

// sqliteWritten are the names that sqliteWrite wrote.
const sqliteWritten = `SELECT name FROM effects WHERE length(name) < 100 ORDER BY name`

// What a handler leaves on its connection must not affect the handlers of later transactions, also if it fails or
// panics.
func TestSQLiteHandlersLeaveNothingOnTheirConnection(t *testing.T) {
	for _, leaves := range sqliteLeftovers {
		for _, end := range []string{"returns nil", "fails", "panics"} {
			t.Run(leaves+" and "+end, func(t *testing.T) {
				d := openSQLite(t)
				s := d.open(t, d.dsn, deduptest.Options{})
				s.db.SetMaxOpenConns(1)
				attempt := func(id string, do func(tx *sql.Tx) error) error {
					defer func() { _ = recover() }()
					return s.InTx(t.Context(), []dedup.Record{record(id)},
						func(tx *sql.Tx, _ []dedup.Claim) error { return do(tx) })
				}
				_ = attempt("leaves", func(tx *sql.Tx) error {
					if _, err := tx.ExecContext(t.Context(), leaves); err != nil {
						t.Error(err)
					}
					switch end {
					case "fails":
						return errUndo
					case "panics":
						panic(errUndo)
					}
					return nil
				})
				for i := range 2 {
					id, write := fmt.Sprint(i), func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), sqliteWrite, fmt.Sprint(i))
						return err
					}
					err := attempt(id, write)
					if err != nil && s.Retryable(err) && strings.Contains(leaves, "max_page_count") {
						// this error makes the Store close the connection
						err = attempt(id, write)
					}
					if err != nil {
						t.Errorf("message %d: %v", i, err)
					}
				}
				// SQLITE_BUSY if the connection keeps its locks
				exec(t, d.own, `INSERT INTO effects (name) VALUES ('beside')`)
				if got := stringsOf(t, d.own, sqliteWritten); !slices.Equal(got, []string{"0", "1", "beside"}) {
					t.Errorf("effects %q, want 0, 1 and beside", got)
				}
			})
		}
	}
}

// Within a batch, what one handler leaves on the connection must not lose or hold up the effects of the others. All
// messages are committed, and none is parked.
func TestSQLiteHandlersOfABatchLeaveNothing(t *testing.T) {
	for _, leaves := range sqliteLeftovers {
		for at := range 4 {
			t.Run(fmt.Sprint(leaves, " by message ", at), func(t *testing.T) {
				d := openSQLite(t)
				s := d.open(t, d.dsn, deduptest.Options{})
				c := sqliteConsumer(t, s, func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
					if _, err := tx.ExecContext(ctx, sqliteWrite, m.ID); err != nil || m.ID != fmt.Sprint(at) {
						return err
					}
					_, err := tx.ExecContext(ctx, leaves)
					return err
				})
				left := sqliteMessages("0", "1", "2", "3")
				for pass := 0; len(left) > 0 && pass < 3; pass++ {
					left = sqliteDeliver(t, c, left)
				}
				if got := stringsOf(t, d.own, sqliteWritten); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
					t.Errorf("effects %q, want 0 to 3", got)
				}
				if n := len(stringsOf(t, d.own, `SELECT message_id FROM dead_letters`)); n+len(left) > 0 {
					t.Errorf("%d messages are not done, %d are parked", len(left), n)
				}
			})
		}
	}
}

// A handler that can never write, because of its own PRAGMA, holds up no other message of its batches, and is parked in
// the end.
func TestSQLiteQueryOnlyHoldsUpNoOtherMessage(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	c := sqliteConsumer(t, s, func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		if m.ID == "bad" {
			if _, err := tx.ExecContext(ctx, `PRAGMA query_only = 1`); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, sqliteWrite, m.ID)
		return err
	})
	bad := sqliteMessages("bad")
	for pass := 0; len(bad) > 0; pass++ {
		if pass == 50 {
			t.Fatal("the message is not parked")
		}
		batch := append(slices.Clone(bad), sqliteMessages(fmt.Sprint("a", pass), fmt.Sprint("b", pass))...)
		bad = sqliteDeliver(t, c, batch)
		if len(bad) > 0 && (len(bad) > 1 || bad[0].ID != "bad") {
			t.Fatalf("pass %d: %d messages are not done, want only the bad one", pass, len(bad))
		}
	}
	if parked := stringsOf(t, d.own, `SELECT message_id FROM dead_letters`); !slices.Equal(parked, []string{"bad"}) {
		t.Errorf("parked: %q", parked)
	}
}

// A handler that removes what it made keeps the connection and its batch. What a connection had before is not the
// handler's.
func TestSQLiteKeepsAConnectionThatIsAsBefore(t *testing.T) {
	d := openSQLite(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	s.db.SetMaxOpenConns(1)
	exec(t, s.db, `CREATE TEMP TABLE own (n INTEGER)`) // like a hook of the driver
	for i, statements := range [][]string{
		{`CREATE TEMP TABLE scratch (n INTEGER)`, `DROP TABLE scratch`},
		{`PRAGMA recursive_triggers = 1`, `PRAGMA recursive_triggers = 0`},
		{`INSERT INTO own VALUES (1)`},
	} {
		recs := []dedup.Record{record(fmt.Sprint(i, "a")), record(fmt.Sprint(i, "b"))}
		err := s.InTx(t.Context(), recs, func(tx *sql.Tx, _ []dedup.Claim) error {
			for _, q := range statements {
				if _, err := tx.ExecContext(t.Context(), q); err != nil {
					return err
				}
			}
			return s.VerifyTx(t.Context(), tx)
		})
		if err != nil {
			t.Errorf("%v: %v", statements, err)
		}
	}
	if got := stringsOf(t, s.db, `SELECT n FROM own`); len(got) != 1 {
		// no such table, if the connection is another one
		t.Errorf("table own has %q", got)
	}
	for _, change := range []string{
		`ALTER TABLE own RENAME TO effects`,
		`DROP TABLE own; CREATE TEMP TABLE effects (name TEXT)`,
	} {
		err := s.InTx(t.Context(), []dedup.Record{record(change)}, func(tx *sql.Tx, _ []dedup.Claim) error {
			if _, err := tx.ExecContext(t.Context(), change); err != nil {
				return err
			}
			return s.VerifyTx(t.Context(), tx)
		})
		if err == nil || s.Retryable(err) || errors.Is(err, dedup.ErrTxEnded) || !strings.Contains(err.Error(),
			"temporary table") {
			t.Errorf("%s: InTx = %v, want an error that names the temporary table", change, err)
		}
	}
}

func sqliteConsumer(t *testing.T, s *node, handle func(context.Context, *sql.Tx, *consumer.Message) error) *consumer.Consumer[*sql.Tx] {
	t.Helper()
	s.db.SetMaxOpenConns(1)
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: s.Store, Key: consumer.MessageID, Handle: handle, MaxAttempts: 3,
		Backoff: func(int) time.Duration { return 0 },
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func sqliteMessages(ids ...string) (msgs []*consumer.Message) {
	for _, id := range ids {
		msgs = append(msgs, &consumer.Message{ID: id, Topic: "t", Attempt: 1})
	}
	return msgs
}

// sqliteDeliver delivers msgs as one batch, and returns those to deliver again.
func sqliteDeliver(t *testing.T, c *consumer.Consumer[*sql.Tx], msgs []*consumer.Message) (left []*consumer.Message) {
	t.Helper()
	for i, err := range c.ProcessBatch(t.Context(), msgs) {
		retry, again := errors.AsType[*consumer.RetryError](err)
		switch {
		case again && !retry.Held:
			msgs[i].Attempt++
			fallthrough
		case again:
			left = append(left, msgs[i])
		case err != nil:
			t.Errorf("message %q: %v", msgs[i].ID, err)
		}
	}
	return left
}
