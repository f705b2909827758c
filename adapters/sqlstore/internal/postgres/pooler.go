package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// poolerWithin bounds the question that needs two connections: there may be only one for us. It is longer in tests.
const poolerWithin = 2 * time.Second

// servedBy has a parameter, so that a driver that prepares what has one does so.
const (
	servedBy = `SELECT pg_backend_pid() WHERE $1::text <> ''`
	whoseOne = `SELECT 1 WHERE $1::text <> ''`
	whoseTwo = `SELECT 2 WHERE $1::text <> ''`
)

// poolerRounds is how often two connections ask at the same time. Of 100 a driver that prepares each statement first fails in
// the first few.
const poolerRounds = 100

// checkPooler refuses a driver that uses a prepared statement in a session of the server's where it was not prepared, as
// happens behind a pooler in transaction mode. Everything else that the Store does is made for such a pooler: settings and
// advisory locks end with their transactions. It sends one statement twice on a connection, while another one is using the
// session that it was first sent in; poolers give out the session first that was used last. Where sessions do change, the two
// then race: a statement without a name may be another client's by then. What cannot be found out is let
// pass: then the first statement that meets the wrong session says so.
func (d *DB) checkPooler(ctx context.Context, db *sql.DB) error {
	if db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.PoolerWithin)
	defer cancel()
	one, err := db.Conn(ctx)
	if err != nil {
		return nil // Check is about to say so
	}
	defer one.Close()
	two, err := db.Conn(ctx)
	if err != nil {
		return nil // not found out
	}
	defer two.Close()
	changed, err := askTwice(ctx, one, two)
	if err == nil && changed {
		err = race(ctx, one, two)
	}
	if missingStatement(err) {
		return fmt.Errorf("sqlstore: Config.DB leads through a pooler that gives each transaction another session, and its driver, %T, prepares "+
			"statements in one and uses them in another (%v): for pgx add default_query_exec_mode=exec to the data source name, for lib/pq "+
			"binary_parameters=yes", db.Driver(), err) // not %w: its code would make it retryable
	}
	return nil
}

// askTwice reports whether a connection got another session for its second statement.
func askTwice(ctx context.Context, one, two *sql.Conn) (changed bool, err error) {
	var before, after int
	if err := one.QueryRowContext(ctx, servedBy, "first").Scan(&before); err != nil {
		return false, err
	}
	tx, err := two.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // nothing was done
	if _, err := tx.ExecContext(ctx, `SELECT 1`); err != nil {
		return false, err
	}
	err = one.QueryRowContext(ctx, servedBy, "second").Scan(&after)
	return after != before, err
}

// errMixedUp says that a connection was answered what another one had asked.
var errMixedUp = errors.New("a statement was replaced by another client's")

// race goes on until both have asked often enough: while one is held up the other one has nobody to meet.
func race(ctx context.Context, one, two *sql.Conn) error {
	var asking atomic.Int32
	asking.Store(2)
	ask := func(conn *sql.Conn, question string, want int) error {
		defer asking.Store(0) // also after an error, which says enough
		for round := 1; asking.Load() > 0; round++ {
			var got int
			if err := conn.QueryRowContext(ctx, question, "x").Scan(&got); err != nil {
				return err
			}
			if got != want {
				return errMixedUp
			}
			if round == poolerRounds {
				asking.Add(-1)
			}
		}
		return nil
	}
	other := make(chan error, 1)
	go func() { other <- ask(two, whoseTwo, 2) }()
	err := ask(one, whoseOne, 1)
	return errors.Join(err, <-other)
}

// missingStatement: a prepared statement is missing, is there although this connection did not prepare it, or is another client's.
func missingStatement(err error) bool {
	state := sqlState(err)
	return state == "26000" || state == "42P05" || errors.Is(err, errMixedUp)
}
