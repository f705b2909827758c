package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

type planObject struct {
	version
	DryRun    bool           `json:"dry_run"`
	Match     int            `json:"match"`
	Run       int            `json:"run"`
	Processed int            `json:"processed"`
	Refused   map[string]int `json:"refused"` // by cause
}

func (a *app) planned(ctx context.Context, db *Database, r ops.Request) (ops.ReplayPlan, error) {
	return ops.PlanReplay(ctx, limitedStore{db.Store.Operator(), a, nil}, r)
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
			if r.Expect >= 0 && r.Expect != plan.Match {
				return refused("nothing was requested: %d match, %d are expected", plan.Match, r.Expect)
			}
			if act.dry {
				o := planObject{version: v1(), DryRun: true, Match: plan.Match, Run: plan.Run, Processed: plan.Processed, Refused: map[string]int{}}
				for cause, n := range plan.Refused {
					o.Refused[string(cause)] = n
				}
				return out.object(o, func() { out.printf("%s\n", planText(plan)) })
			}
			if plan.Match == 0 {
				return refused("nothing was requested: no letter matches that waits for no other replay; see txonce actions list --open")
			}
			if r.Expect < 0 {
				r.Expect = plan.Match // the request is refused if another number matches than was shown
			}
			out.notef("%s\n", planText(plan))
			if err := out.confirm(ctx, fmt.Sprintf("Type the name of the consumer, %s, to replay them: ", filter.Consumer), filter.Consumer, false); err != nil {
				return err
			}
		}
		limited, cancel := a.limit(ctx)
		action, err := db.Store.Operator().Request(limited, r)
		cancel()
		if err == nil && action.Matched == 0 { // no worker would end it if the consumer's name is wrong
			limited, cancel := a.limit(ctx)
			action, err = db.Store.Operator().End(limited, action.ID, replayDone)
			cancel()
		}
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
	flags.Lookup("consumer").Usage = "whose letters are replayed (required)"
	flags.IntVar(&f.both.limit, "limit", 0, "at most so many, the oldest first; 0: all")
	flags.StringVar(&newKey, "new-key", "", "process one letter under another natural key; a mismatch needs it")
	flags.BoolVar(&asNew, "as-new", false, "replay unprovable, suspected_replay and outcome_unknown letters too: you have made sure that they were not processed")
	flags.Float64Var(&rate, "rate", 0, "letters a second, by all workers together; 0: no limit")
	flags.IntVar(&maxFailures, "max-failures", 10, "end the replay after so many failed letters; 0: never")
	flags.BoolVar(&wait, "wait", false, "wait for the end, and exit with 1 if letters failed")
	return c
}
