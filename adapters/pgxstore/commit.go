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

// commitReplicated sends COMMIT where it waits for synchronous standbys. A COMMIT whose wait was cancelled answers like any
// other, and says in a warning only that no standby may have it: such a COMMIT counts as unknown. The claim that is then
// made again finds a duplicate, whose own COMMIT waits for the standbys too.
//
// pgx hands warnings to a callback of the pool's configuration, which is the user's; here they are read from the protocol.
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
			if msg.SeverityUnlocalized == "WARNING" && msg.Routine == "SyncRepWaitForLSN" { // a deferred trigger may warn of anything
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

// giveUp ends a COMMIT that got no answer in time. Without the cancellation its server process would wait for the standbys for as
// long as they are away, and one more for each message.
func cancelCommit(ctx context.Context, conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.CancelRequest(ctx)
	_ = conn.Close(ctx)
}
