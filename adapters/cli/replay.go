package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// replayFlags are the flags of replay.
type replayFlags struct {
	letters        letterFlags
	act            actFlags
	newKey, repair string
	asNew, wait    bool
	here           bool
	rate           float64
	maxFailures    int
}

func (f *replayFlags) add(c *cobra.Command, mayRunHere bool) {
	f.letters.add(c)
	f.act.add(c)
	flags := c.Flags()
	flags.Lookup("consumer").Usage = "whose letters are replayed (required)"
	flags.IntVar(&f.letters.both.limit, "limit", 0, "how many to replay at most, the oldest first; 0: all")
	flags.StringVar(&f.newKey, "new-key", "", "process one letter under another business key; a mismatch needs it")
	flags.StringVar(&f.repair, "repair", "", "process one letter with the content of this `file` as its payload, under its own key or --new-key")
	flags.BoolVar(&f.asNew, "as-new", false, "also replay unprovable, known_content and outcome_unknown letters: you have looked for their effects and found none")
	flags.Float64Var(&f.rate, "rate", 0, "letters a second, by all workers together; 0: no limit")
	flags.IntVar(&f.maxFailures, "max-failures", ops.DefaultMaxFailures,
		"end the replay when this number of letters has failed; 0: never")
	flags.BoolVar(&f.wait, "wait", false, "wait for the end, and exit with 1 if letters failed")
	if mayRunHere {
		flags.BoolVar(&f.here, "here", false, "carry the replay out in this process, and the consumer's other open requests too; workers take part")
	}
}

// request returns what the flags ask for.
func (f *replayFlags) request() (r ops.Request, err error) {
	filter, err := f.letters.filter()
	if err != nil {
		return r, err
	}
	if err := f.act.check(); err != nil {
		return r, err
	}
	r = ops.Request{
		Kind: ops.Replay, Who: f.act.who, Reason: f.act.reason, Filter: filter, Key: f.newKey, AsNew: f.asNew,
		Rate: f.rate, MaxFailures: f.maxFailures,
		Expect: f.act.expect,
	}
	if f.repair != "" {
		if f.letters.id == "" {
			return r, Usage(errors.New("--repair is for one letter: choose it with --id"))
		}
		r.Kind = ops.Repair
		if r.Payload, err = os.ReadFile(f.repair); err != nil {
			return r, Usage(fmt.Errorf("--repair: %w", err))
		}
	}
	checked := r
	if f.act.dry {
		checked.Reason = "dry run"
	}
	if err := checked.Validate(); err != nil {
		return r, Usage(err)
	}
	return r, nil
}

func (a *app) replayLetters() *cobra.Command {
	var f replayFlags
	c := a.command("replay", "Request that the workers process dead letters again", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		r, err := f.request()
		if err != nil {
			return err
		}
		var replayer Replayer
		if f.here && !f.act.dry {
			if replayer, err = a.cfg.Replayer(ctx, db, r.Filter.Consumer); err != nil {
				return refused("--here: %w", err)
			}
		}
		if err := a.hasRun(ctx, db, r.Filter.Consumer); err != nil {
			return err
		}
		if f.act.dry || !f.act.yes {
			plan, err := ops.PlanReplay(ctx, limitedStore{db.Store.Operator(), a, nil}, r, 0)
			if err != nil {
				return err
			}
			if r.Expect >= 0 && r.Expect != plan.Match {
				return refused("nothing was requested: %d match, %d are expected", plan.Match, r.Expect)
			}
			if f.act.dry {
				return out.object(planJSON(plan), func() { out.printf("%s\n", planText(plan)) })
			}
			if plan.Match == 0 {
				return refused("nothing was requested: no letter matches that waits for no other replay; see txonce actions list --open")
			}
			if r.Expect < 0 {
				r.Expect = plan.Match // the request is refused if another number matches than was shown
			}
			out.notef("%s\n", planText(plan))
			if err := out.confirmCount(ctx, fmt.Sprintf("Type the name of the consumer, %s, to replay them: ",
				r.Filter.Consumer), r.Filter.Consumer, plan.Match); err != nil {
				return err
			}
		}
		limited, cancel := a.limit(ctx)
		action, err := db.Store.Operator().Request(limited, r)
		cancel()
		if err == nil && action.Matched == 0 { // no worker would end it if none runs
			limited, cancel := a.limit(ctx)
			action, err = db.Store.Operator().End(limited, action.ID, replayDone)
			cancel()
		}
		switch {
		case err != nil:
			return err
		case replayer != nil && action.Ended.IsZero():
			return a.runHere(ctx, db, out, replayer, action)
		case f.wait:
			return a.follow(ctx, db, out, action, "the workers go on")
		}
		return out.object(actionJSON(out, action), func() {
			out.printf("action %s: %s requested; follow it with: txonce actions show %s --wait\n", action.ID,
				counted(action.Matched, "letter"), action.ID)
		})
	})
	f.add(c, a.cfg.Replayer != nil)
	return c
}

// runHere runs the replays in this process until the action ends.
func (a *app) runHere(ctx context.Context, db *Database, out *printer, replayer Replayer, action ops.Action) error {
	running, stop := context.WithCancel(ctx)
	following, failed := context.WithCancelCause(ctx)
	defer failed(nil)
	done := make(chan error, 1)
	go func() {
		err := replayer.RunReplays(running)
		if err != nil {
			failed(err)
		}
		done <- err
	}()
	err := a.follow(following, db, out, action, "the letters that are left wait for workers")
	stop()
	if failed := <-done; failed != nil { // it has made no progress
		return fmt.Errorf("--here: %w (action %s is still open)", failed, action.ID)
	}
	return err
}

type planObject struct {
	version
	DryRun    bool           `json:"dry_run"`
	Match     int            `json:"match"`
	Run       int            `json:"run"`
	Undecoded int            `json:"undecodable"` // of run
	Processed int            `json:"processed"`
	Refused   map[string]int `json:"refused"`   // by cause
	Elsewhere int            `json:"elsewhere"` // not in match: letters that wait for another open request
}

func planJSON(p ops.ReplayPlan) planObject {
	o := planObject{
		version: v1(), DryRun: true, Match: p.Match, Run: p.Run, Undecoded: p.Undecoded,
		Processed: p.Processed, Refused: map[string]int{}, Elsewhere: p.Elsewhere,
	}
	for cause, n := range p.Refused {
		o.Refused[string(cause)] = n
	}
	return o
}

func planText(p ops.ReplayPlan) string {
	text := fmt.Sprintf("%d match: %d would run", p.Match, p.Run)
	if p.Undecoded > 0 {
		text += fmt.Sprintf(" (%d of these undecodable: such a letter fails again unless the decoder was mended, or --repair gives it a payload)", p.Undecoded)
	}
	if p.Processed > 0 {
		text += fmt.Sprintf(", %d processed meanwhile", p.Processed)
	}
	for _, cause := range slices.Sorted(maps.Keys(p.Refused)) {
		needs := "--as-new"
		switch cause {
		case observe.CauseMismatch:
			needs = "--new-key"
		case observe.CauseNoKey:
			needs = "--repair or --new-key"
		case observe.CauseUndecodable: // the plan counts others among those that run
			needs = "--repair with the whole payload: the letter is shortened"
		default:
		}
		text += fmt.Sprintf(", %d %s (needs %s)", p.Refused[cause], cause, needs)
	}
	if p.Elsewhere > 0 {
		text += fmt.Sprintf("; %d more wait for another request", p.Elsewhere)
	}
	return text
}
