package pgxstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// inDoubt adds to err a function that can find out later whether the transaction was committed.
func (c *claim) inDoubt(err error) error {
	if c.xid == "" {
		return err
	}
	xid := c.xid
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

// committed reports whether the server says that the transaction was committed. It opens a new connection if the old
// one was lost, or was closed because the handler's ctx ended during a statement. It returns an error if the server
// does not answer.
func (c *claim) committed(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if status, err := c.status(ctx, c.conn); err == nil {
		return status == "committed", nil
	}
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			disconnect(ctx, conn)
		}
	}()
	for until := time.Now().Add(answerWithin); ; <-time.After(10 * time.Millisecond) {
		var status string
		var err error
		if conn == nil || conn.IsClosed() {
			conn, err = connect(ctx, c.store.cfg.Pool)
		}
		if err == nil {
			status, err = c.status(ctx, conn)
		}
		switch {
		case err == nil && status != "in progress":
			return status == "committed", nil
		case time.Now().Before(until):
		case err == nil:
			return false, fmt.Errorf("transaction %s is still in progress", c.xid)
		default:
			return false, err
		}
	}
}

// txStatus returns the state of a transaction: in progress, committed or aborted; empty if it ended too long ago.
const txStatus = `SELECT coalesce(pg_xact_status($1::text::xid8), '')`

func (c *claim) status(ctx context.Context, conn *pgx.Conn) (status string, err error) {
	err = conn.QueryRow(ctx, txStatus, c.xid).Scan(&status)
	return status, err
}
