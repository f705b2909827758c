package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txonce/txonce/consumer/ops/audit"
)

// audits measures messages on eight connections, alone and beside an audit of the claims in the same table, at the rate
// of txonce audit.
func (b *bench) audits(ctx context.Context) error {
	const conns, before, perSecond = 8, 100_000, 5_000
	slot, n := 5*b.size.slot, b.size.rounds/2+1
	b.progress("audits")
	return b.server.inWorld(ctx, conns+2, false, func(ctx context.Context, w *world) error {
		for _, statement := range []string{
			`CREATE INDEX ledger_id ON ledger (id)`,
			fmt.Sprintf(`INSERT INTO processed_messages (key, expires_at, fingerprint, consumer, id)
				SELECT gen_random_uuid(), now() + '1 day'::interval, i, 'plain', 'order-' || i FROM generate_series(1, %d) AS i`, before/b.size.backlog),
			`INSERT INTO ledger (id, amount) SELECT id, 1 FROM processed_messages`,
			`VACUUM (ANALYZE) processed_messages, ledger`,
		} {
			if _, err := w.pool.Exec(ctx, statement); err != nil {
				return err
			}
		}
		c, err := w.inMemory()
		if err != nil {
			return err
		}
		db := stdlib.OpenDBFromPool(w.pool)
		defer db.Close()
		cfg := audit.Config{
			DB: db, Dialect: "postgres", Consumer: "plain", Rate: perSecond,
			Effects: `SELECT id, count(*) FROM ledger WHERE id IN (:ids) GROUP BY id`,
		}
		audited := 0
		auditing := func(ctx context.Context) error {
			for ctx.Err() == nil {
				r, err := audit.Claims(ctx, cfg)
				audited += r.Checked
				if r.Faults() > 0 {
					return fmt.Errorf("the audit has found %d faults, and nothing is wrong: %+v", r.Faults(),
						r.Findings[0])
				}
				if err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		}
		hs := w.number([]*handling{{name: "alone", do: each(process(c.plain))}, {name: "beside an audit", base: "alone", do: each(process(c.plain))}})
		checked := series{}
		hs[0].measure = func(ctx context.Context) (float64, error) { return rate(ctx, conns, slot, hs[0].run) }
		hs[1].measure = func(ctx context.Context) (perSecond float64, err error) {
			begun := audited
			err = while(ctx, auditing, func(ctx context.Context) error {
				perSecond, err = rate(ctx, conns, slot, hs[1].run)
				return err
			})
			checked[hs[1].name] = append(checked[hs[1].name], float64(audited-begun)/slot.Seconds())
			return perSecond, err
		}
		ways := []way{{hs[0].name, "", hs[0].measure}, {hs[1].name, "alone", hs[1].measure}}
		figures, err := rounds(ctx, n, false, ways)
		if err != nil {
			return err
		}
		t := b.report.table("audits", "")
		t.add("messages/s", ways, figures)
		t.add("claims compared/s", ways[1:], checked)
		return w.auditAll(ctx, hs)
	})
}
