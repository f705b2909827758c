package postgres

import (
	"context"
	"database/sql"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/pgrelay"
)

// RelayStatements implements engine.Relay.
func (d *DB) RelayStatements() *dialect.PostgresOutbox { return &d.box.relay }

// Send implements engine.Relay.
func (d *DB) Send(ctx context.Context, q engine.Queryer, steps ...pgrelay.Step) error {
	for _, step := range steps {
		args := slices.Clone(step.Args)
		for i := range args {
			args[i] = parameter(args[i])
		}
		if step.Sending != nil {
			step.Sending()
		}
		if step.Row != nil {
			if err := engine.Query(ctx, q, step.SQL, args...).Each(step.Row); err != nil {
				return err
			}
			continue
		}
		done, err := q.ExecContext(ctx, step.SQL, args...)
		if err != nil {
			return err
		}
		if step.Changed != nil {
			rows, err := done.RowsAffected()
			if err != nil {
				return err
			}
			step.Changed(rows)
		}
	}
	return nil
}

// Reading implements engine.Relay. It runs f in a transaction, whose settings prevent the server from scanning whole
// tables.
func (d *DB) Reading(ctx context.Context, f func(context.Context, engine.Queryer) error) error {
	leave, err := d.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	tx, err := d.cfg.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after Commit
	if err := d.Send(ctx, tx, pgrelay.Step{SQL: d.box.relay.Settings}); err != nil {
		return err
	}
	if err := f(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
