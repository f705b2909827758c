package main

import (
	"context"
	"fmt"
)

// transactions compares transactions with and without a message, without a relay.
func (b *bench) transactions(ctx context.Context) error {
	t := b.report.table("transactions", "messages/s")
	for _, column := range loopback {
		b.progress("transactions, %s", column.name)
		err := b.at(ctx, &place{tuned: true}, func(ctx context.Context, p *place) error {
			inTx, one, ten, own := handling{name: "InTx", base: "bare", do: each(p.inTx(0))},
				handling{name: "InTx, a message", base: "InTx", do: each(p.inTx(1))},
				handling{name: "InTx, ten messages", base: "InTx", do: each(p.inTx(10))},
				handling{name: "the caller's own transaction, a message", base: "bare", do: each(p.ownTx)}
			hs := []*handling{{name: "bare", do: each(p.bare)}}
			for _, k := range outboxKinds {
				s, err := k.setup(ctx, p)
				if err != nil {
					return fmt.Errorf("%s: %w", k.name, err)
				}
				hs = append(hs, &handling{name: k.name, base: "bare", do: each(s.Tx)})
			}
			systems := hs[1:]
			hs = append(hs, &inTx, &one, &ten, &own)
			if err := b.compare(ctx, p.world, t, column, b.size.slot, b.size.rounds, hs); err != nil {
				return err
			}
			for i, k := range outboxKinds {
				want := systems[i].handled.Load()
				if i == 0 {
					want += one.handled.Load() + 10*ten.handled.Load() + own.handled.Load()
				}
				var rows int64
				if err := p.pool.QueryRow(ctx, "SELECT count(*) FROM "+k.rows).Scan(&rows); err != nil {
					return err
				}
				if rows != want {
					return fmt.Errorf("%s wrote %d messages of %d", k.name, rows, want)
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", column.name, err)
		}
	}
	return nil
}
