package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// commit writes what waits and commits the transaction.
func (w *writer) commit(ctx context.Context, tx pgx.Tx, late lateWrites, standbys bool) error {
	if len(late.statements) > 0 {
		ctx, cancel := late.limited(ctx, w.endWithin)
		defer cancel()
		if !standbys || w.cfg.AllowAsyncCommit {
			return late.late(ctx, w.writeAndCommit(ctx, tx, late))
		}
		if err := tx.SendBatch(ctx, &pgx.Batch{QueuedQueries: late.statements}).Close(); err != nil {
			return late.late(ctx, lostBefore(err))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.endWithin)
	defer cancel()
	if standbys && !w.cfg.AllowAsyncCommit {
		if err := w.saveResults(ctx, tx, late.results); err != nil {
			return lostBefore(err)
		}
		if _, err := w.write(ctx, tx, late.messages); err != nil {
			return lostBefore(err)
		}
		if late.sync != "" {
			if _, err := tx.Exec(ctx, w.plain.Sync, late.sync); err != nil {
				return lostBefore(err)
			}
		}
		return commitError(commitReplicated(ctx, tx.Conn().PgConn()))
	}
	if len(late.messages)+len(late.results) > 0 || late.sync != "" {
		return w.writeAndCommit(ctx, tx, late)
	}
	return commitError(tx.Commit(ctx))
}

// writeAndCommit sends late and COMMIT in one round trip. When a statement before COMMIT fails, the server skips
// COMMIT, and the caller must roll back. After success the transaction has ended, but tx does not know that.
func (w *writer) writeAndCommit(ctx context.Context, tx pgx.Tx, late lateWrites) error {
	shards := 0
	if len(late.messages) > 0 {
		var err error
		if shards, err = w.shardsIn(ctx, tx); err != nil {
			return lostBefore(err)
		}
	}
	b := &pgx.Batch{}
	insertions := w.queueLate(b, &late, shards)
	results := tx.SendBatch(ctx, b)
	// no error can follow the answer to COMMIT; after another error, this lets the connection roll back
	defer results.Close()
	return readLate(results, &late, insertions)
}

// queueLate adds late and COMMIT to b, and returns the number of statements that insert messages.
func (w *writer) queueLate(b *pgx.Batch, late *lateWrites, shards int) (insertions int) {
	b.QueuedQueries = append(b.QueuedQueries, late.statements...)
	w.queueResults(b, late.results)
	for rows := late.messages; len(rows) > 0; insertions++ {
		n := fitting(rows)
		sql, args := w.insertion(rows[:n], shards)
		b.Queue(sql, args...)
		rows = rows[n:]
	}
	if late.sync != "" {
		b.Queue(w.plain.Sync, late.sync)
	}
	b.Queue("commit")
	return insertions
}

// readLate reads the answers to what queueLate has added.
func readLate(results pgx.BatchResults, late *lateWrites, insertions int) error {
	for range late.statements {
		if _, err := results.Exec(); err != nil {
			return lostWith(err)
		}
	}
	if err := readResults(results, late.results); err != nil {
		return lostWith(err)
	}
	for range insertions {
		if _, err := results.Exec(); err != nil {
			return lostWith(stepError("enqueue", err))
		}
	}
	if late.sync != "" {
		if _, err := results.Exec(); err != nil {
			return lostWith(err)
		}
	}
	tag, err := results.Exec()
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return commitError(err)
}

// lostBefore classifies an error before COMMIT is sent. The code of the server's answer decides. Without one the
// database is at fault.
func lostBefore(err error) error {
	if errors.As(err, new(*pgconn.PgError)) || database.Caused(err) {
		return err
	}
	return database.Errorf("pgxstore: not committed: %w", err)
}

// lostWith classifies an error of a statement that was sent together with COMMIT. If the server refused the statement,
// it skipped COMMIT, and the error's code decides. If the connection was lost, the server may have committed: a pooler
// answers the first statement then.
func lostWith(err error) error {
	if errors.As(err, new(pgx.ErrPreprocessingBatch)) { // nothing was sent
		return err
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && severity(pg) == "ERROR" {
		return err
	}
	return unknownCommit(err)
}

func commitError(err error) error {
	if err != nil && !isDefinite(err) {
		return unknownCommit(err)
	}
	return err
}

func unknownCommit(err error) error {
	return database.Errorf("pgxstore: commit: %w: %w", errCommitUnknown, err)
}
