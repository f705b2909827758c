package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// actFlags are the flags of commands that change something.
type actFlags struct {
	reason, who string
	yes, dry    bool
	expect      int
}

func (f *actFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.reason, "reason", "", "why; it is recorded (required)")
	flags.StringVar(&f.who, "who", whoami(), "who acts; it is recorded")
	flags.BoolVar(&f.yes, "yes", false, "do not ask; needs --expect")
	flags.IntVar(&f.expect, "expect", -1, "refuse unless exactly so many match")
	flags.BoolVar(&f.dry, "dry-run", false, "count, and change nothing")
	flags.Lookup("who").DefValue = "user@host"
}

func (f *actFlags) check() error {
	switch {
	case f.dry:
		return nil
	case f.reason == "":
		return usage(fmt.Errorf("--reason is required: the next operator will want to know why"))
	case f.yes && f.expect < 0:
		return usage(fmt.Errorf("--yes needs --expect N, so that a script does not act on more than it has looked at; see --dry-run"))
	}
	return nil
}

func (a *app) discardLetters() *cobra.Command {
	var f letterFlags
	var act actFlags
	c := a.command("discard", "Remove dead letters without processing them", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		if f.id == "" && f.consumer == "" {
			return usage(fmt.Errorf("--consumer or --id is required"))
		}
		if err := act.check(); err != nil {
			return err
		}
		r := ops.Request{Kind: ops.Discard, Who: act.who, Reason: act.reason, Filter: filter, Expect: act.expect}
		if act.dry || !act.yes {
			n, err := ops.CountLetters(ctx, limitedStore{db.Store.Operator(), a}, filter)
			if err != nil {
				return err
			}
			if act.dry {
				type dry struct {
					version
					DryRun bool `json:"dry_run"`
					Match  int  `json:"match"`
				}
				return out.object(dry{v1(), true, n}, func() { out.printf("%d match\n", n) })
			}
			if r.Expect < 0 {
				r.Expect = n
			}
			out.notef("%d match. They will never be processed: a late redelivery of one is a duplicate.\n", n)
			word := f.consumer
			if word == "" {
				word = f.id
			}
			if err := out.confirm(fmt.Sprintf("Type %s to discard them: ", word), word, false); err != nil {
				return err
			}
		}
		action, err := ops.DiscardLetters(ctx, limitedStore{db.Store.Operator(), a}, r)
		if err != nil {
			return err
		}
		return out.object(actionJSON(out, action), func() {
			out.printf("%s discarded (action %s)\n", counted(action.Results[observe.Rejected], "letter"), action.ID)
		})
	})
	f.add(c)
	act.add(c)
	c.Flags().IntVar(&f.limit, "limit", 0, "at most so many, the newest first; 0: all")
	return c
}
