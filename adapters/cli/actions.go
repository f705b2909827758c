package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

func (a *app) actions() *cobra.Command {
	return group("actions", "Show what operators have done and requested, and end a replay", a.listActions(),
		a.showAction(), a.endAction())
}

type actionObject struct {
	version
	ID        string         `json:"id"`
	Kind      ops.Kind       `json:"kind"`
	Consumer  string         `json:"consumer,omitempty"`
	Who       string         `json:"who"`
	Reason    string         `json:"reason"`
	Filter    string         `json:"filter,omitempty"` // JSON
	NewKey    string         `json:"new_key,omitempty"`
	AsNew     bool           `json:"as_new,omitempty"`
	Rate      float64        `json:"rate,omitempty"`
	Requested *time.Time     `json:"requested"`
	Ended     *time.Time     `json:"ended"`
	Note      string         `json:"note,omitempty"`
	Matched   int            `json:"matched"`
	Results   map[string]int `json:"results"` // by outcome
	Waiting   int            `json:"waiting"`
	Failures  []resultObject `json:"failures,omitempty"` // only of show
}

type resultObject struct {
	Letter string     `json:"letter"`
	Cause  string     `json:"cause"`
	Error  string     `json:"error"`
	At     *time.Time `json:"at"`
	Tries  int        `json:"tries"`
}

func actionJSON(out *printer, a ops.Action) actionObject {
	o := actionObject{
		version: v1(), ID: a.ID.String(), Kind: a.Kind, Consumer: a.Consumer, Who: a.Who, Reason: a.Reason,
		Filter: a.Filter, NewKey: out.key(a.Key), AsNew: a.AsNew,
		Rate: a.Rate, Requested: jsonTime(a.Requested), Ended: jsonTime(a.Ended), Note: a.Note, Matched: a.Matched,
		Results: map[string]int{}, Waiting: a.Waiting,
	}
	if len(out.keys.Secret) > 0 {
		o.Filter = "" // it may name a key
		if a.Kind == ops.Unpark || a.Kind == ops.Answer || a.Kind == ops.DiscardOutbox {
			o.Note = "" // as Filter
		}
	}
	for outcome, n := range a.Results {
		o.Results[string(outcome)] = n
	}
	return o
}

var kinds = []ops.Kind{ops.Replay, ops.Repair, ops.Discard, ops.Unpark, ops.Answer, ops.DiscardOutbox, ops.Horizon, ops.Import}

// noted are the kinds whose note says what was done.
var noted = []ops.Kind{ops.Import, ops.Answer, ops.Horizon}

func (a *app) listActions() *cobra.Command {
	var f ops.ActionFilter
	var kind string
	c := a.command("list", "List actions, newest first", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		if f.Kind = ops.Kind(kind); kind != "" && !slices.Contains(kinds, f.Kind) {
			return Usage(fmt.Errorf("--kind %q: want replay, repair, discard, unpark, answer, discard_outbox, horizon or import", kind))
		}
		if f.Limit < 1 {
			return Usage(fmt.Errorf("--limit %d: want 1 or more", f.Limit))
		}
		ctx, cancel := a.limit(ctx)
		defer cancel()
		found, err := db.Store.Operator().Actions(ctx, f)
		if err != nil {
			return err
		}
		type list struct {
			version
			Actions []actionObject `json:"actions"`
		}
		l := list{version: v1(), Actions: []actionObject{}}
		rows := [][]string{{"ID", "REQUESTED", "KIND", "CONSUMER", "WHO", "STATE", "RESULTS", "REASON"}}
		for _, action := range found {
			l.Actions = append(l.Actions, actionJSON(out, action))
			results := ""
			if action.Consumer != "" {
				results = actionText(action)
			}
			if slices.Contains(noted, action.Kind) && len(out.keys.Secret) == 0 {
				results = action.Note
			}
			rows = append(rows, []string{
				action.ID.String(), instant(action.Requested), string(action.Kind), action.Consumer, action.Who,
				actionState(action), results, shorten(action.Reason, 40),
			})
		}
		return out.object(l, func() {
			if len(found) == 0 {
				out.printf("no actions match\n")
				return
			}
			out.table(rows)
			if len(found) == f.Limit {
				out.printf("these are the latest; more with a larger --limit\n")
			}
		})
	})
	c.Flags().StringVar(&f.Consumer, "consumer", "", "only those of this consumer")
	c.Flags().StringVar(&kind, "kind", "", "only replay, repair, discard, unpark, answer, discard_outbox, horizon or import")
	c.Flags().BoolVar(&f.Open, "open", false, "only those that have not ended")
	c.Flags().IntVar(&f.Limit, "limit", 100, "how many to list at most")
	return c
}

func actionState(a ops.Action) string {
	if a.Ended.IsZero() {
		return "open"
	}
	return "ended"
}

func (a *app) showAction() *cobra.Command {
	var wait bool
	c := a.command("show ID", "Show an action and the letters that failed", cobra.ExactArgs(1), func(ctx context.Context, db *Database, out *printer, args []string) error {
		id, err := ops.ParseActionID(args[0])
		if err != nil {
			return Usage(err)
		}
		limited, cancel := a.limit(ctx)
		defer cancel()
		s := db.Store.Operator()
		found, err := s.Actions(limited, ops.ActionFilter{ID: id})
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return fmt.Errorf("%w: %s", ops.ErrNoAction, id)
		case wait && (found[0].Kind == ops.Replay || found[0].Kind == ops.Repair):
			// nothing else goes on without the command that began it
			return a.follow(ctx, db, out, found[0], "the workers go on")
		}
		action := found[0]
		failures, err := s.Results(limited, ops.ResultFilter{
			Action: id, Outcome: observe.Parked,
			Limit: max(1, action.Results[observe.Parked]),
		})
		if err != nil {
			return err
		}
		o := actionJSON(out, action)
		for _, f := range failures {
			o.Failures = append(o.Failures, resultObject{
				f.Letter.String(), string(f.Cause), f.Error, jsonTime(f.At),
				f.Tries,
			})
		}
		return out.object(o, func() {
			out.field("id", "%s", action.ID)
			out.field("kind", "%s", action.Kind)
			out.field("who", "%s", action.Who)
			out.field("reason", "%s", action.Reason)
			if o.Filter != "" {
				out.field("filter", "%s", o.Filter)
			}
			out.field("requested", "%s", instant(action.Requested))
			out.field("state", "%s", actionState(action))
			if o.Note != "" {
				out.field("note", "%s", o.Note)
			}
			if action.Consumer != "" && action.Kind != ops.Import {
				out.field("results", "%s", actionText(action))
			}
			for _, f := range failures {
				out.field("failed", "%s: %s: %s", f.Letter, f.Cause, shorten(f.Error, 100))
			}
		})
	})
	c.Flags().BoolVar(&wait, "wait", false, "wait for the end of a replay, and exit with 1 if letters failed")
	return c
}

func (a *app) endAction() *cobra.Command {
	var reason, who string
	c := a.command("end ID", "End a replay: letters that have not run yet stay dead letters", cobra.ExactArgs(1), func(ctx context.Context, db *Database, out *printer, args []string) error {
		id, err := ops.ParseActionID(args[0])
		if err != nil {
			return Usage(err)
		}
		if reason == "" {
			return Usage(fmt.Errorf("--reason is required"))
		}
		ctx, cancel := a.limit(ctx)
		defer cancel()
		s := db.Store.Operator()
		found, err := s.Actions(ctx, ops.ActionFilter{ID: id})
		if err != nil {
			return err
		}
		if len(found) > 0 && !found[0].Ended.IsZero() {
			return refused("nothing was changed: action %s has ended already: %s", id, Harmless(found[0].Note))
		}
		action, err := s.End(ctx, id, who+": "+reason)
		if err != nil {
			return err
		}
		return out.object(actionJSON(out, action), func() { out.printf("ended: %s\n", actionText(action)) })
	})
	c.Flags().StringVar(&reason, "reason", "", "why; it is recorded (required)")
	addWho(c, &who)
	return c
}
