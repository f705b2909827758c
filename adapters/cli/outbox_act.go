package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
)

// changeParked returns the command unpark or discard. It chooses the messages, asks, and then changes those that it has
// chosen and no others.
func (a *app) changeParked(name, short string, kind ops.Kind) *cobra.Command {
	var f parkedFlags
	var act actFlags
	c := a.command(name+" [SEQ...]", short, cobra.ArbitraryArgs, func(ctx context.Context, db *Database, out *printer, args []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		seqs, err := parseSeqs(args)
		if err != nil {
			return err
		}
		bare := filter == outbox.ParkedFilter{Limit: filter.Limit}
		switch {
		case len(seqs) == 0 && bare:
			return Usage(errors.New("name the messages by SEQ, or choose them with --topic, --key, --error, --since or --until"))
		case len(seqs) > 0 && (!bare || filter.Limit > 0):
			return Usage(errors.New("name the messages by SEQ or by conditions, not both"))
		}
		if err := act.check(); err != nil {
			return err
		}
		note := "messages " + numbers(seqs)
		if len(seqs) == 0 {
			note = ops.DescribeParked(filter)
			var chosen ops.ParkedChoice
			chosen, err = ops.ChooseParked(ctx, limitedStore{db.Store.Operator(), a, nil}, filter, 0)
			seqs = chosen.Seqs
		} else {
			seqs, err = a.stillParked(ctx, db, out, seqs)
		}
		if err != nil {
			return err
		}
		warning := fmt.Sprintf("%s would be pending again and published.", count(len(seqs), "message"))
		if kind == ops.DiscardOutbox {
			warning = fmt.Sprintf("%s would be deleted and never published.", count(len(seqs), "message"))
			switch n, err := a.callsAmong(ctx, db, seqs); {
			case err != nil:
				return err
			case n > 0:
				warning += fmt.Sprintf(" Of these, %s to other systems may have happened, and the result would never be recorded: see outbox answer.", count(n, "call"))
			}
		}
		if goOn, err := act.agree(ctx, out, len(seqs), warning, fmt.Sprint(len(seqs))); !goOn {
			return err
		}
		return a.change(ctx, db, out, ops.Request{
			Kind: kind, Who: act.who, Reason: act.reason, Note: note,
			Expect: -1,
		}, seqs)
	})
	f.both.add(c, "topic", "ordering key")
	act.add(c)
	c.Flags().IntVar(&f.both.limit, "limit", 0, "how many to change at most, the oldest first; 0: all")
	return c
}

// stillParked returns those of seqs that are parked, without repeats, and names the others.
func (a *app) stillParked(ctx context.Context, db *Database, out *printer, seqs []int64) (parked []int64, err error) {
	for _, seq := range slices.Compact(slices.Sorted(slices.Values(seqs))) {
		switch _, ok, err := a.parked(ctx, db, seq); {
		case err != nil:
			return nil, err
		case ok:
			parked = append(parked, seq)
		default:
			out.notef("message %d is not parked: it was unparked or discarded, or never existed\n", seq)
		}
	}
	return parked, nil
}

// change records the action and then changes the messages, some at a time.
func (a *app) change(ctx context.Context, db *Database, out *printer, r ops.Request, seqs []int64) error {
	done := "unparked"
	if r.Kind == ops.DiscardOutbox {
		done = "discarded"
	}
	p, changing := newProgress(out, done, len(seqs)), 0
	action, n, err := ops.ChangeMessages(ctx, limitedStore{db.Store.Operator(), a, func(n int) { changing += n; p.show(changing, 0) }}, r, seqs)
	p.end()
	switch {
	case err == nil:
		return out.object(changed{version: v1(), Match: len(seqs), Changed: n, Action: action.ID.String()}, func() {
			out.printf("%s %s (action %s)\n", counted(n, "message"), done, action.ID)
		})
	case action.ID == ops.ActionID{}: // nothing was changed
		return err
	}
	return fmt.Errorf("%s %s (action %s), and then: %w", counted(n, "message"), done, action.ID, err)
}
