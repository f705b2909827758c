package relay

import (
	"context"

	dedup "github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/losses"
	"github.com/txonce/txonce/observe"
)

const lostPublished = "This relay had published messages in that time whose transactions may be gone, and receivers have them all the same: " +
	"see \"After a failover that lost commits\" in docs/outbox.md. Messages whose rows came back are published again, with the same IDs"

// watchLosses returns nil if the Queue cannot tell what the database has.
func (r *Relay) watchLosses() *losses.Watch {
	return losses.New(r.cfg.Queue, losses.Config{
		Name: observe.Relays, Source: dedup.SourcePublished, Resend: lostPublished, Logger: r.cfg.Logger,
		WentBack: func(ctx context.Context, l observe.Loss) {
			hooks.Call(ctx, &r.panics, "WentBack", r.cfg.Trace.WentBack, l)
		},
	})
}
