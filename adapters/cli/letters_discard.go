package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

func (a *app) discardLetters() *cobra.Command {
	var f letterFlags
	var act actFlags
	c := a.command("discard", "Remove dead letters without processing them", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		word := f.consumer
		if word == "" {
			word = f.id
		}
		if word == "" {
			return Usage(errors.New("--consumer or --id is required"))
		}
		if err := act.check(); err != nil {
			return err
		}
		if err := a.hasRun(ctx, db, f.consumer); err != nil {
			return err
		}
		r := ops.Request{Kind: ops.Discard, Who: act.who, Reason: act.reason, Filter: filter, Expect: act.expect}
		if act.dry || !act.yes {
			n, err := ops.CountLetters(ctx, limitedStore{db.Store.Operator(), a, nil}, filter)
			if err != nil {
				return err
			}
			warning := fmt.Sprintf("%d match. They will never be processed: a late redelivery of one is a duplicate.", n)
			if goOn, err := act.agree(ctx, out, n, warning, word); !goOn {
				return err
			}
			r.Expect = n // it is refused if another number matches than was shown
		}
		return a.discard(ctx, db, out, r)
	})
	f.add(c)
	act.add(c)
	c.Flags().Lookup("consumer").Usage = "whose letters are removed (required, or --id)"
	c.Flags().IntVar(&f.both.limit, "limit", 0, "how many to discard at most, the oldest first; 0: all")
	return c
}

func (a *app) discard(ctx context.Context, db *Database, out *printer, r ops.Request) error {
	p := newProgress(out, "discarded", max(r.Expect, 0))
	n := 0
	store := limitedStore{db.Store.Operator(), a, func(int) { n++; p.show(n, 0) }}
	action, err := ops.DiscardLetters(ctx, store, r)
	p.end()
	switch {
	case err == nil:
		return out.object(actionJSON(out, action),
			func() { out.printf("%s discarded (action %s)\n", counted(n, "letter"), action.ID) })
	case action.ID == ops.ActionID{}: // nothing was discarded
		return err
	}
	err = fmt.Errorf("%s discarded (action %s), and then: %w", counted(n, "letter"), action.ID, err)
	if errors.Is(err, dedup.ErrInFlight) {
		return finding("%w; that letter is being processed now: look at it again later", err)
	}
	return err
}
