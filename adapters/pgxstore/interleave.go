package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore/internal/interleave"
)

// errHidden says that a function has changed how the server parses statements, so that Interleave may have sent
// together what must not be.
var errHidden = errors.New("pgxstore: standard_conforming_strings was turned off in a transaction with several handlers")

// Interleave implements driver.Interleaver. Above READ COMMITTED, where handlers may rely on the isolation of
// transactions in place of locks, and in the simple protocol, handlers run one after the other. A tracer of pgx sees
// one batch in place of the statements of several handlers. A pgtype.Codec of the application's own that the connection
// has registered must be safe for concurrent use.
func (s *Store) Interleave(
	ctx context.Context, tx pgx.Tx, keys []string, handlers []func(context.Context, pgx.Tx) error,
) (failed int, err error) {
	t, ok := tx.(*guarded)
	if !ok || t.nested {
		return -1, errors.New("pgxstore: interleave: want the transaction that InTx gave to fn")
	}
	if err := t.g.ready(ctx); err != nil {
		return -1, err
	}
	mode := t.g.c.conn.Config().DefaultQueryExecMode
	alone := hidesText(t.g.c.conn) || s.cfg.Isolation != pgx.ReadCommitted || mode == pgx.QueryExecModeSimpleProtocol
	return interleave.Run(ctx, interleave.Config{
		Tx: t, Guard: interleaved{t}, Alone: alone, Patience: s.patience,
	}, keys, handlers)
}

// interleaved is an interleave.Guard.
type interleaved struct{ t *guarded }

// Ready implements interleave.Guard.
func (i interleaved) Ready(ctx context.Context) error {
	if err := i.t.g.ready(ctx); err != nil {
		return err
	}
	if hidesText(i.t.g.c.conn) {
		return errHidden
	}
	i.t.g.failures.touch()
	return nil
}

// Send implements interleave.Guard.
func (i interleaved) Send(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return guardedBatch{i.t.Tx.SendBatch(ctx, b), i.t.g}
}

// Verify implements interleave.Guard.
func (i interleaved) Verify(ctx context.Context) error { return verifyTx(ctx, i.t) }

// Enqueues implements interleave.Guard.
func (i interleaved) Enqueues(sql string) bool { return i.t.g.c.store.enqueues(sql) }

// guardOf returns the guarded transaction behind tx, and tx itself if Interleave runs the handler. Both are nil if tx
// is not of InTx.
func guardOf(tx pgx.Tx) (*guarded, *interleave.Tx) {
	handlers, ok := tx.(*interleave.Tx)
	if ok {
		tx = handlers.Guarded()
	}
	t, _ := tx.(*guarded)
	return t, handlers
}
