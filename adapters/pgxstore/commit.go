package pgxstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// commitReplicated sends COMMIT when COMMIT waits for synchronous standbys. If that wait is cancelled, COMMIT still
// reports success, and only a warning says that possibly no standby has the commit. The outcome of such a COMMIT counts
// as unknown. The next claim then finds a duplicate, whose own COMMIT waits for the standbys too.
//
// pgx passes warnings to a callback in the pool's configuration, which belongs to the user. So this function reads them
// from the protocol.
func commitReplicated(ctx context.Context, conn *pgconn.PgConn) error {
	if err := conn.SyncConn(ctx); err != nil {
		return err
	}
	conn.Frontend().Send(&pgproto3.Query{String: "commit"})
	if err := conn.Frontend().Flush(); err != nil {
		_ = conn.Close(ctx)
		return err
	}
	var warned, failed error
	for {
		msg, err := conn.ReceiveMessage(ctx)
		if err != nil {
			cancelCommit(ctx, conn)
			return cmp.Or(failed, err)
		}
		switch msg := msg.(type) {
		case *pgproto3.NoticeResponse:
			if msg.SeverityUnlocalized == "WARNING" && msg.Routine == "SyncRepWaitForLSN" {
				// a deferred trigger may send other warnings
				warned = fmt.Errorf("it may be on no synchronous standby yet: %s", msg.Message)
			}
		case *pgproto3.CommandComplete:
			if string(msg.CommandTag) == "ROLLBACK" {
				failed = pgx.ErrTxCommitRollback
			}
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.ReadyForQuery:
			return cmp.Or(failed, warned)
		}
	}
}

// cancelCommit cancels a COMMIT that got no answer in time. Otherwise its server process would wait as long as the
// standbys are away, and each further message would add such a process.
func cancelCommit(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.CancelRequest(ctx)
	_ = conn.Close(ctx)
}
