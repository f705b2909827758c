package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// poolerWithin limits the check for a pooler. The check needs two connections, and the pool may have only one free.
// Tests use a longer limit.
const poolerWithin = 2 * time.Second

// These statements have a parameter because some drivers prepare only statements with parameters.
const (
	servedBy  = `SELECT pg_backend_pid() WHERE $1::text <> ''`
	answerOne = `SELECT 1 WHERE $1::text <> ''`
	answerTwo = `SELECT 2 WHERE $1::text <> ''`
)

// poolerRounds is how many statements each of two connections sends at the same time. With a driver that prepares each
// statement first, one of the first few fails.
const poolerRounds = 100

// checkPooler fails if the driver uses a prepared statement in another server session than it was prepared in. This
// happens behind a pooler in transaction mode. The Store's other features work with such a pooler: settings and
// advisory locks end with their transactions.
//
// checkPooler sends one statement twice on a connection. For the second time, another connection keeps the first server
// session busy (poolers assign the most recently used session first). If the session changed, both connections send
// statements at the same time: an unnamed statement may then be replaced by the other client's.
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
	if err == nil && changed {
		err = sendConcurrently(ctx, one, two)
	}
	if missingStatement(err) {
		return fmt.Errorf("sqlstore: Config.DB leads through a pooler that gives each transaction another session, and its driver, %T, prepares "+
			"statements in one and uses them in another (%v): for pgx add default_query_exec_mode=exec to the data source name, for lib/pq "+
			"binary_parameters=yes", db.Driver(), err) // not %w: the SQLSTATE would make the error retryable
	}
	return nil
}

// sessionChanges reports whether the second statement on connection one ran in another server session than the first.
func sessionChanges(ctx context.Context, one, two *sql.Conn) (changed bool, err error) {
	var before, after int
	if err := one.QueryRowContext(ctx, servedBy, "first").Scan(&before); err != nil {
		return false, err
	}
	tx, err := two.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // the transaction only reads
	if _, err := tx.ExecContext(ctx, `SELECT 1`); err != nil {
		return false, err
	}
	err = one.QueryRowContext(ctx, servedBy, "second").Scan(&after)
	return after != before, err
}

// errMixedUp means that a connection got the answer to another connection's statement.
var errMixedUp = errors.New("a statement was replaced by another client's")

// sendConcurrently sends statements on both connections until each has sent poolerRounds. A connection that is done
// continues until the other one is done too, so that both always send at the same time.
func sendConcurrently(ctx context.Context, one, two *sql.Conn) error {
	var asking atomic.Int32
	asking.Store(2)
	ask := func(conn *sql.Conn, question string, want int) error {
		defer asking.Store(0) // after an error the other connection can stop too
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
	go func() { other <- ask(two, answerTwo, 2) }()
	err := ask(one, answerOne, 1)
	return errors.Join(err, <-other)
}

// missingStatement reports whether a prepared statement is missing, already exists without having been prepared on this
// connection, or was replaced by another client's.
func missingStatement(err error) bool {
	state := sqlState(err)
	return state == "26000" || state == "42P05" || errors.Is(err, errMixedUp)
}
