package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/dedup"
)

// sweepLease is as long as that of a Sweeper by default. With a shorter one the lease of a Sweeper would end so late that
// it counts as one that a clock has left behind, and sweep --once would take it over.
const sweepLease = 5 * time.Minute

func (a *app) sweep() *cobra.Command {
	var once bool
	var limit int
	c := a.command("sweep", "Delete expired keys until interrupted, as the Sweeper of a worker does; with --once in one pass", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		if limit < 1 {
			return Usage(fmt.Errorf("--limit %d: want 1 or more", limit))
		}
		if once {
			return a.sweepOnce(ctx, db, out, limit)
		}
		s, err := dedup.NewSweeper(dedup.SweeperConfig{Store: db.Store, Limit: limit, Logger: slog.New(slog.NewTextHandler(out.err, nil))})
		if err != nil {
			return err
		}
		if err := s.Run(ctx); err != nil {
			return err
		}
		return ctx.Err()
	})
	c.Flags().BoolVar(&once, "once", false, "make one pass over the table, and end")
	c.Flags().IntVar(&limit, "limit", 1000, "how many keys one transaction deletes at most")
	return c
}

func (a *app) sweepOnce(ctx context.Context, db *Database, out *printer, limit int) error {
	type swept struct {
		version
		Keys       int     `json:"keys"`
		Busy       bool    `json:"busy"` // another sweeper holds the lease
		LagSeconds float64 `json:"lag_seconds"`
	}
	r := swept{version: v1()}
	p := newProgress(out, "keys deleted", 0)
	defer p.end()
	by := dedup.Sweep{Owner: "txonce-sweep-" + rand.Text(), Lease: sweepLease, Limit: limit}
	var lag time.Duration
	for {
		limited, cancel := a.limit(ctx)
		began := time.Now()
		part, err := db.Store.Purge(limited, by)
		cancel()
		if err != nil {
			return fmt.Errorf("%s deleted: %w", counted(r.Keys, "key"), err)
		}
		r.Keys, r.Busy, lag = r.Keys+part.Keys, part.Busy, max(lag, part.Lag)
		p.show(r.Keys, 0)
		if part.Busy {
			break
		}
		if part.Done {
			// Another Purge shortens the lease, so that the next sweeper need not wait for its end. It may delete one
			// more key.
			limited, cancel := a.limit(ctx)
			by.Lease, by.Limit = time.Millisecond, 1
			part, err := db.Store.Purge(limited, by)
			cancel()
			if err != nil {
				return fmt.Errorf("%s deleted: %w", counted(r.Keys, "key"), err)
			}
			r.Keys += part.Keys
			break
		}
		// as Sweeper does, so that claims stay fast
		timer := time.NewTimer(max(9*time.Since(began), 5*time.Millisecond))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%s deleted: %w", counted(r.Keys, "key"), ctx.Err())
		}
	}
	p.end()
	r.LagSeconds = lag.Seconds()
	return out.object(r, func() {
		if r.Busy {
			out.printf("%s deleted here: another sweeper has the lease, also when its process has ended; txonce status shows which one, and until when\n", counted(r.Keys, "key"))
			return
		}
		if r.Keys == 0 {
			out.printf("no key has expired\n")
			return
		}
		out.printf("%s deleted; the oldest had expired %s before\n", counted(r.Keys, "key"), ago(lag))
	})
}
