package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

type planObject struct {
	version
	DryRun    bool           `json:"dry_run"`
	Match     int            `json:"match"`
	Run       int            `json:"run"`
	Processed int            `json:"processed"`
	Refused   map[string]int `json:"refused"` // by cause
}

func (a *app) planned(ctx context.Context, db *Database, r ops.Request) (ops.ReplayPlan, error) {
	return ops.PlanReplay(ctx, limitedStore{db.Store.Operator(), a}, r)
}

func planText(p ops.ReplayPlan) string {
	text := fmt.Sprintf("%d match: %d would run", p.Match, p.Run)
	if p.Processed > 0 {
		text += fmt.Sprintf(", %d processed meanwhile", p.Processed)
	}
	for _, cause := range slices.Sorted(maps.Keys(p.Refused)) {
		needs := "--as-new"
		if cause == observe.CauseMismatch || cause == observe.CauseNoKey {
			needs = "--new-key"
		}
		text += fmt.Sprintf(", %d %s (needs %s)", p.Refused[cause], cause, needs)
	}
	return text
}

func (a *app) replayLetters() *cobra.Command {
	var f letterFlags
	var act actFlags
	var newKey string
	var asNew, wait bool
	var rate float64
	var maxFailures int
	c := a.command("replay", "Request that the workers process dead letters again", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		if err := act.check(); err != nil {
			return err
		}
		r := ops.Request{
			Kind: ops.Replay, Who: act.who, Reason: act.reason, Filter: filter, Key: newKey, AsNew: asNew, Rate: rate, MaxFailures: maxFailures, Expect: act.expect,
		}
		checked := r
		if act.dry {
			checked.Reason = "dry run"
		}
		if err := checked.Validate(); err != nil {
			return usage(err)
		}
		if act.dry || !act.yes {
			plan, err := a.planned(ctx, db, r)
			if err != nil {
				return err
			}
			if act.dry {
				o := planObject{version: v1(), DryRun: true, Match: plan.Match, Run: plan.Run, Processed: plan.Processed, Refused: map[string]int{}}
				for cause, n := range plan.Refused {
					o.Refused[string(cause)] = n
				}
				return out.object(o, func() { out.printf("%s\n", planText(plan)) })
			}
			if r.Expect < 0 {
				r.Expect = plan.Match // the request is refused if another number matches than was shown
			}
			out.notef("%s\n", planText(plan))
			if err := out.confirm(fmt.Sprintf("Type the name of the consumer, %s, to replay them: ", filter.Consumer), filter.Consumer, false); err != nil {
				return err
			}
		}
		limited, cancel := a.limit(ctx)
		action, err := db.Store.Operator().Request(limited, r)
		cancel()
		if err != nil {
			return err
		}
		if wait {
			return a.follow(ctx, db, out, action)
		}
		return out.object(actionJSON(out, action), func() {
			out.printf("action %s: %s requested; follow it with: txonce actions show %s --wait\n", action.ID, counted(action.Matched, "letter"), action.ID)
		})
	})
	f.add(c)
	act.add(c)
	flags := c.Flags()
	flags.IntVar(&f.limit, "limit", 0, "at most so many, the oldest first; 0: all")
	flags.StringVar(&newKey, "new-key", "", "process one letter under another natural key; a mismatch needs it")
	flags.BoolVar(&asNew, "as-new", false, "you have made sure that the messages were not processed before")
	flags.Float64Var(&rate, "rate", 0, "letters a second, by all workers together; 0: no limit")
	flags.IntVar(&maxFailures, "max-failures", 10, "end after so many failures; 0: do not")
	flags.BoolVar(&wait, "wait", false, "wait for the end, and exit with 1 if letters failed")
	return c
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
			plan, err := a.planned(ctx, db, r)
			if err != nil {
				return err
			}
			if act.dry {
				type dry struct {
					version
					DryRun bool `json:"dry_run"`
					Match  int  `json:"match"`
				}
				return out.object(dry{v1(), true, plan.Match}, func() { out.printf("%d match\n", plan.Match) })
			}
			if r.Expect < 0 {
				r.Expect = plan.Match
			}
			out.notef("%d match. They will never be processed: a late redelivery of one is a duplicate.\n", plan.Match)
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

// follow shows the progress of an action until it ends.
func (a *app) follow(ctx context.Context, db *Database, out *printer, action ops.Action) error {
	p := newProgress(out, "replayed", action.Matched)
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for action.Ended.IsZero() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.end()
			out.notef("the workers go on; follow it with: txonce actions show %s --wait\n", action.ID)
			return ctx.Err()
		}
		limited, cancel := a.limit(ctx)
		found, err := db.Store.Operator().Actions(limited, ops.ActionFilter{ID: action.ID})
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			p.end()
			return fmt.Errorf("the request is made, and the workers carry it out (action %s): %w", action.ID, err)
		case err == nil && len(found) == 0:
			return fmt.Errorf("%w: %s", ops.ErrNoAction, action.ID)
		case err == nil:
			action = found[0]
			p.show(action.Matched-action.Waiting, action.Results[observe.Parked])
		}
	}
	p.end()
	if err := out.object(actionJSON(out, action), func() { out.printf("%s\n", actionText(action)) }); err != nil {
		return err
	}
	if n := action.Results[observe.Parked]; n > 0 {
		return finding("%s failed: txonce actions show %s says why", count(n, "letter"), action.ID)
	}
	return nil
}

func actionText(a ops.Action) string {
	parts := []string{count(a.Matched, "letter")}
	for _, r := range []struct {
		outcome observe.Outcome
		text    string
	}{{observe.Processed, "processed"}, {observe.Duplicate, "processed before"}, {observe.Parked, "failed"}, {observe.Rejected, "discarded"}, {observe.Held, "not tried"}} {
		if n := a.Results[r.outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, r.text))
		}
	}
	if a.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", a.Waiting))
	}
	return strings.Join(parts, ", ")
}
