package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
	"github.com/txonce/txonce/internal/faults"
)

// poolerWithin limits the check for a pooler. The check needs two connections, and the pool may have only one free.
// Tests use a longer limit.
const poolerWithin = 2 * time.Second

// poolerRounds is how many statements each of two connections sends at the same time. With a driver that prepares each
// statement first, one of the first few fails.
const poolerRounds = 100

// mostWait is how long one of the connections waits at most before it sends a statement: about as long as the answer
// takes.
const mostWait = 300 * time.Microsecond

// checkPooler fails if the driver uses a prepared statement in another server session than it was prepared in. This
// happens behind a pooler in transaction mode. The Store's other features work with such a pooler: settings and
// advisory locks end with their transactions.
//
// checkPooler sends one statement twice on a connection. For the second time, another connection keeps the first server
// session busy (poolers assign the most recently used session first). Drivers that encode parameters after they have
// prepared a statement, such as pgx, then use it in a session that does not have it. Other drivers prepare unnamed
// statements: if the session changed, both connections send statements at the same time, and a statement may then be
// replaced by the other client's.
//
// If the check is inconclusive, checkPooler returns nil. The first statement in a wrong session will report the
// problem.
func (d *DB) checkPooler(ctx context.Context, db *sql.DB) error {
	if db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.PoolerWithin)
	defer cancel()
	one, err := db.Conn(ctx)
	if err != nil {
		return nil // Check reports this error
	}
	defer one.Close()
	two, err := db.Conn(ctx)
	if err != nil {
		return nil // the check is inconclusive
	}
	defer two.Close()
	changed, err := sessionChanges(ctx, one, two)
	if err == nil && changed && d.PoolerRounds > 0 {
		err = sendConcurrently(ctx, one, two, d.PoolerRounds)
	}
	if missingStatement(err) {
		return fmt.Errorf("sqlstore: Config.DB leads through a pooler that gives each transaction another session, and its driver, %T, prepares "+
			"statements in one and uses them in another (%v): for pgx add default_query_exec_mode=exec to the data source name, for lib/pq "+
			"binary_parameters=yes", db.Driver(), err) // not %w: the SQLSTATE would make the error retryable
	}
	return nil
}

// errMixedUp means that a connection got the answer to another connection's statement.
var errMixedUp = errors.New("a statement was replaced by another client's")

// question is a statement that no server session has from an earlier check: that would hide that it does not have this
// one's.
type question struct{ text, mark string }

func newQuestion() question {
	mark := rand.Text()
	// some drivers prepare only statements with parameters
	return question{fmt.Sprintf(`SELECT pg_backend_pid(), '%s' WHERE $1::text <> ''`, mark), mark}
}

// ask returns the server session that answers q on conn.
func (q question) ask(ctx context.Context, conn *sql.Conn, parameter any) (session int, err error) {
	rows, err := conn.QueryContext(ctx, q.text, parameter)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	mark := ""
	if !rows.Next() || rows.Scan(&session, &mark) != nil || mark != q.mark {
		return 0, cmp.Or(rows.Err(), ctx.Err(), errMixedUp)
	}
	return session, rows.Close()
}

// sessionChanges reports whether the second statement on connection one ran in another server session than the first.
func sessionChanges(ctx context.Context, one, two *sql.Conn) (changed bool, err error) {
	q := newQuestion()
	before, err := q.ask(ctx, one, "first")
	if err != nil {
		return false, err
	}
	// The next session gets an unnamed statement of this check: one of an application must not run by mistake.
	first := &occupant{ctx: ctx, conn: one}
	if _, err = first.Value(); err == nil {
		_, err = newQuestion().ask(ctx, two, "x")
	}
	first.leave()
	if err != nil {
		return false, err
	}
	keep := &occupant{ctx: ctx, conn: two}
	defer keep.leave()
	after, err := q.ask(ctx, one, keep)
	return after != before, err
}

// occupant is a parameter whose transaction on conn keeps a server session busy from the time on when it is encoded.
type occupant struct {
	ctx  context.Context
	conn *sql.Conn
	tx   *sql.Tx
	err  error
}

// Value implements driver.Valuer. Drivers may call it several times.
func (o *occupant) Value() (sqldriver.Value, error) {
	if o.tx == nil && o.err == nil {
		if o.tx, o.err = o.conn.BeginTx(o.ctx, nil); o.err == nil {
			_, o.err = o.tx.ExecContext(o.ctx, `SELECT 1`)
		}
	}
	return "second", o.err
}

func (o *occupant) leave() {
	if o.tx != nil {
		_ = o.tx.Rollback() // it only reads
	}
}

// sendConcurrently sends statements on both connections until each has sent as many as rounds. A connection that is done
// continues until the other one is done too, so that both always send at the same time. They wait for random times:
// otherwise they may take turns for hundreds of rounds, so that neither replaces a statement of the other one.
func sendConcurrently(ctx context.Context, one, two *sql.Conn, rounds int) error {
	var asking atomic.Int32
	asking.Store(2)
	ask := func(conn *sql.Conn) error {
		defer asking.Store(0) // after an error the other connection can stop too
		for round := 1; asking.Load() > 0; round++ {
			if err := await.Sleep(ctx, backoff.Draw(mostWait)); err != nil {
				return err
			}
			if _, err := newQuestion().ask(ctx, conn, "x"); err != nil {
				return err
			}
			if round == rounds {
				asking.Add(-1)
			}
		}
		return nil
	}
	other := make(chan error, 1)
	go func() { other <- ask(two) }()
	err := ask(one)
	return errors.Join(err, <-other)
}

// missingStatement reports whether a prepared statement is missing, already exists without having been prepared on this
// connection, or was replaced by another client's. That one may have other parameters, or refuse the values.
func missingStatement(err error) bool {
	switch state := sqlState(err); state {
	case "26000", "42P05", "08P01":
		return true
	default:
		return faults.OfPostgres(state) == driver.FaultData || errors.Is(err, errMixedUp)
	}
}
