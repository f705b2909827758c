package pgxstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup/driver"
)

// horizon is until when keys were forgotten.
type horizon struct {
	asked     bool       // the next two fields are set
	isolation string     // of the claim's transaction
	forgotten *time.Time // all deleted rows had expired by then; nil: none was deleted
}

func (h *horizon) read(row pgx.Row) error { return sweepError(row.Scan(&h.isolation, &h.forgotten)) }

// Forgotten implements claims.Driver.
func (c *claim) Forgotten(ctx context.Context, consumers []string) (forgotten time.Time, uses map[string][]driver.WindowUse, err error) {
	h := &c.horizon
	if !h.asked { // queue did not ask, because this machine's clock is behind the database's
		if err := h.read(c.tx.QueryRow(ctx, c.store.sql.Sweep)); err != nil {
			return forgotten, nil, err
		}
	}
	var q querier = c.tx
	if h.isolation != "read committed" && h.isolation != "read uncommitted" {
		q = c.store.cfg.Pool
		var cancel context.CancelFunc
		// because the callers may hold all of the pool's connections
		ctx, cancel = context.WithTimeout(ctx, c.store.cfg.ClaimTimeout)
		defer cancel()
		if err := q.QueryRow(ctx, c.store.sql.Forgotten).Scan(&h.forgotten); err != nil {
			return forgotten, nil, sweepError(err)
		}
	}
	if h.forgotten == nil {
		return forgotten, nil, nil
	}
	uses = make(map[string][]driver.WindowUse, len(consumers))
	for _, consumer := range consumers {
		rows, _ := q.Query(ctx, c.store.sql.Windows, consumer)
		uses[consumer], err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (u driver.WindowUse, err error) {
			var seconds int64
			err = row.Scan(&seconds, &u.FirstRun, &u.UsedUntil)
			u.Window = time.Duration(seconds) * time.Second
			return u, err
		})
		if err != nil {
			return forgotten, nil, claimError(err)
		}
	}
	return *h.forgotten, uses, nil
}
