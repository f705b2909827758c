package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
)

// inDoubt adds to err a function that can find out later whether transaction xid was committed; empty: it has written
// nothing.
func inDoubt(xid string, err error) error {
	if xid == "" {
		return err
	}
	return &dedup.InDoubtError{Err: err, Committed: func(ctx context.Context, tx any) (bool, error) {
		on, ok := tx.(pgx.Tx)
		if !ok {
			return true, nil
		}
		var status string
		if err := on.QueryRow(ctx, txStatus, xid).Scan(&status); err != nil {
			return false, database.Errorf("pgxstore: ask what became of transaction %s: %w", xid, err)
		}
		return status == "committed" || status == "", nil
	}}
}

// answerWithin limits how long committed waits until the server has rolled back the transaction of a closed connection,
// and how long it repeats a question that got no answer.
const answerWithin = 2 * time.Second

// committed reports whether the server says that transaction xid of conn was committed. It opens a new connection if
// the old one was lost, or was closed because the handler's ctx ended during a statement. It returns an error if the
// server does not answer.
func committed(ctx context.Context, xid string, conn *pgx.Conn, pool *pgxpool.Pool) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if status, err := statusOf(ctx, xid, conn); err == nil {
		return status == "committed", nil
	}
	var fresh *pgx.Conn
	defer func() {
		if fresh != nil {
			disconnect(ctx, fresh)
		}
	}()
	for until := time.Now().Add(answerWithin); ; <-time.After(10 * time.Millisecond) {
		var status string
		var err error
		if fresh == nil || fresh.IsClosed() {
			fresh, err = connect(ctx, pool)
		}
		if err == nil {
			status, err = statusOf(ctx, xid, fresh)
		}
		switch {
		case err == nil && status != "in progress":
			return status == "committed", nil
		case time.Now().Before(until):
		case err == nil:
			return false, fmt.Errorf("transaction %s is still in progress", xid)
		default:
			return false, err
		}
	}
}

// txStatus returns the state of a transaction: in progress, committed or aborted; empty if it ended too long ago.
const txStatus = `SELECT coalesce(pg_xact_status($1::text::xid8), '')`

func statusOf(ctx context.Context, xid string, conn *pgx.Conn) (status string, err error) {
	err = conn.QueryRow(ctx, txStatus, xid).Scan(&status)
	return status, err
}
