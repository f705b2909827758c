package pgxstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
)

// In a transaction of InTx, the result of a key that InTx has claimed waits in the guard. If the handler sends no
// statement after it, the result is written together with COMMIT, which saves a round trip. Otherwise it is written
// before the handler's next statement. The server thus gets results and statements in the handler's order, and when the
// handler rolls back to a savepoint, the server undoes exactly the results that were saved after that savepoint.

// SaveResult implements driver.ResultStore. If InTx has claimed key and the handler sends no further statement, result
// is written together with COMMIT, and InTx returns the database's errors about it.
func (s *Store) SaveResult(ctx context.Context, tx pgx.Tx, key dedup.Key, result []byte) error {
	if err := s.resolve(ctx, tx); err != nil {
		return err
	}
	if result == nil {
		result = []byte{} // NULL means that no result was saved
	}
	if t, ours := tx.(*guarded); ours && t.g.c.store == s.claimer && ctx.Err() == nil && t.saveLater(key, result) {
		return nil
	}
	tag, err := tx.Exec(ctx, s.sql.SaveResult, pgUUID(key.Hash()), result)
	if err == nil && tag.RowsAffected() != 1 {
		return fmt.Errorf(errNotClaimed, key)
	}
	return stepError("save result", err)
}

// saveLater keeps result until the next statement or COMMIT, and reports whether it may. It may not if the statement
// would fail anyhow, or if the handler can send statements that the guard does not see.
func (t *guarded) saveLater(key dedup.Key, result []byte) bool {
	g := t.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.closed || g.ended != nil || g.sight.exposed || g.sight.lost || !g.c.Inserted[key.Hash()] ||
		g.c.conn.IsClosed() || g.c.conn.PgConn().TxStatus() != 'T' {
		return false
	}
	g.late.results = append(g.late.results, savedResult{key, slices.Clone(result)})
	return true
}

// flushResults writes the waiting results before a statement of the handler.
func (g *guard) flushResults(ctx context.Context) error {
	g.mu.Lock()
	results := g.late.results
	g.mu.Unlock()
	if len(results) == 0 {
		return nil
	}
	if g.c.conn.PgConn().TxStatus() == 'E' {
		// only a rollback to a savepoint can save it, and that undoes the results too
		g.mu.Lock()
		g.late.results = nil
		g.mu.Unlock()
		return nil
	}
	if err := g.c.store.saveResults(ctx, g.c.tx, results); err != nil {
		return g.failures.note(err)
	}
	g.mu.Lock()
	g.late.results = g.late.results[len(results):] // a goroutine of the handler may have saved another one meanwhile
	g.mu.Unlock()
	return nil
}
