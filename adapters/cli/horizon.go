package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

func (a *app) horizon() *cobra.Command {
	return group("horizon", "Show, or move forward, the time up to which claims may have been deleted", a.showHorizon(),
		a.setHorizon())
}

type horizonObject struct {
	Consumer string     `json:"consumer"`
	Before   *time.Time `json:"before,omitempty"` // of set: the horizon until now; null: none
	Horizon  *time.Time `json:"horizon"`          // null: no claim was deleted
}

type horizonsObject struct {
	version
	DryRun   bool            `json:"dry_run,omitempty"`
	Horizons []horizonObject `json:"horizons"`
}

func (a *app) showHorizon() *cobra.Command {
	return a.command("show [CONSUMER]", "Show the horizon: messages of that time or earlier are unprovable if they have no claim", cobra.MaximumNArgs(1),
		func(ctx context.Context, db *Database, out *printer, args []string) error {
			ctx, cancel := a.limit(ctx)
			defer cancel()
			s, err := db.Store.Operator().Status(ctx)
			if err != nil {
				return err
			}
			o := horizonsObject{version: v1(), Horizons: []horizonObject{}}
			rows := [][]string{{"CONSUMER", "HORIZON", "WINDOW"}}
			for _, c := range s.Consumers {
				if len(args) == 0 || args[0] == c.Name {
					o.Horizons = append(o.Horizons, horizonObject{Consumer: c.Name, Horizon: jsonTime(c.Horizon)})
					rows = append(rows, []string{c.Name, instant(c.Horizon), windows(c.Windows, s.Now)})
				}
			}
			if len(args) > 0 && len(o.Horizons) == 0 {
				return noConsumer(args[0], s.Consumers)
			}
			return out.object(o, func() { out.table(rows) })
		})
}

func (a *app) setHorizon() *cobra.Command {
	var reason, who string
	var yes, dry, acceptParking bool
	c := a.command("set CONSUMER TIME", "Say that claims of messages up to TIME may be missing, as after the restore of a backup", cobra.ExactArgs(2),
		func(ctx context.Context, db *Database, out *printer, args []string) error {
			to, err := parseTime("TIME", args[1], time.Time{})
			if err != nil {
				return err
			}
			if to.IsZero() {
				return Usage(errors.New("TIME is empty: want a time such as 2026-11-24T10:07:00Z"))
			}
			if reason == "" && !dry {
				return Usage(fmt.Errorf("--reason is required: the next operator will want to know why"))
			}
			reading, cancel := a.limit(ctx)
			s, err := db.Store.Operator().Status(reading)
			cancel()
			if err != nil {
				return err
			}
			forgotten, err := forgottenFor(s, args[0], to)
			if err != nil {
				return err
			}
			o := horizonsObject{version: v1(), DryRun: dry, Horizons: horizonsAfter(s, forgotten)}
			var text string
			for _, h := range o.Horizons {
				if h.Horizon != nil {
					text += fmt.Sprintf("%s: messages of %s or earlier without a claim are unprovable\n",
						Harmless(h.Consumer), instant(*h.Horizon))
				}
			}
			if dry {
				return out.object(o, func() { out.printf("%s", text) })
			}
			if err := parksNewMessages(s, args[0], o.Horizons); err != nil && !acceptParking {
				return err
			}
			if !yes {
				out.notef("%sThis cannot be undone.\n", text)
			}
			if err := out.confirm(ctx, fmt.Sprintf("Type the name of the consumer, %s, to go on: ", args[0]), args[0],
				yes); err != nil {
				return err
			}
			writing, cancel := a.limit(ctx) // the answer may have taken long
			defer cancel()
			if err := a.moveHorizon(writing, db, forgotten, ops.Request{
				Kind: ops.Horizon, Who: who, Reason: reason, Note: "horizon of " + args[0] + ": " +
					to.UTC().Format(time.RFC3339), Expect: -1,
			}); err != nil {
				return err
			}
			return out.object(o, func() { out.printf("%s", text) })
		})
	c.Flags().StringVar(&reason, "reason", "", "why; it is recorded (required)")
	addWho(c, &who)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&acceptParking, "accept-parking", false,
		"also if messages that other consumers get from now on are parked as unprovable for some time")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the horizons of all consumers that would result, and change nothing")
	return c
}

// horizonsAfter returns the horizons of all consumers after claims that expired up to forgotten were deleted.
func horizonsAfter(s ops.Status, forgotten time.Time) []horizonObject {
	horizons := make([]horizonObject, len(s.Consumers))
	for i, c := range s.Consumers {
		horizons[i] = horizonObject{
			Consumer: c.Name, Before: jsonTime(c.Horizon),
			Horizon: jsonTime(driver.Horizon(forgotten, uses(c))),
		}
	}
	return horizons
}

// parksNewMessages refuses horizons of consumers other than name that are so late that a store looks for them when a
// message arrives now.
func parksNewMessages(s ops.Status, name string, horizons []horizonObject) error {
	for i, h := range horizons {
		if latest := s.Now.Add(-dedup.MinWindow); h.Consumer != name && h.Horizon != nil && h.Horizon.After(latest) &&
			h.Horizon.After(s.Consumers[i].Horizon) {
			return refused("this would also move the horizon of %s to %s, because its window is shorter than that of %s: until %s, new messages of %[1]s "+
				"that are handled %[5]v or more after their time would be parked as unprovable. --dry-run shows all horizons; accept this with --accept-parking",
				Harmless(h.Consumer), instant(*h.Horizon), Harmless(name), instant(h.Horizon.Add(dedup.MinWindow)),
				dedup.MinWindow)
		}
	}
	return nil
}

func uses(c ops.ConsumerStatus) []driver.WindowUse {
	all := make([]driver.WindowUse, len(c.Windows))
	for i, w := range c.Windows {
		all[i] = driver.WindowUse{Window: w.Window, FirstRun: w.FirstRun, UsedUntil: w.UsedUntil}
	}
	return all
}

// forgottenFor returns the expiry of deleted claims that gives a consumer the horizon to. The database keeps only that
// expiry, for all consumers, so the horizons of others move too.
func forgottenFor(s ops.Status, name string, to time.Time) (time.Time, error) {
	for _, c := range s.Consumers {
		if c.Name != name {
			continue
		}
		if latest := s.Now.Add(-dedup.MinWindow); to.After(latest) {
			return time.Time{}, refused("the horizon cannot be later than %s: stores do not look for it when a message is younger than %v. "+
				"Nothing was changed: keep the workers stopped until %s, and run this command again then",
				instant(latest), dedup.MinWindow, instant(to.Add(dedup.MinWindow)))
		}
		if !to.After(c.Horizon) {
			return time.Time{}, refused("the horizon of %s is %s already, and it cannot go back: claims are deleted",
				name, instant(c.Horizon))
		}
		for _, w := range c.Windows { // the shortest first
			forgotten := to.Add(w.Window)
			if h := driver.Horizon(forgotten, uses(c)); !h.Before(to) {
				return forgotten, nil
			}
		}
		return time.Time{}, refused("no worker of %s ran within a window of %s, so no claim for a message of that time can be missing", name, instant(to))
	}
	return time.Time{}, noConsumer(name, s.Consumers)
}

// moveHorizon records the action and then writes the expiry.
func (a *app) moveHorizon(ctx context.Context, db *Database, forgotten time.Time, r ops.Request) error {
	action, err := db.Store.Operator().Request(ctx, r)
	if err != nil {
		return err
	}
	table, query := a.table(db, "txonce_sweep"), ""
	arg := any(forgotten.UnixMicro())
	switch db.Dialect {
	case "postgres":
		query, arg = `UPDATE `+table+` SET forgotten_until = greatest(forgotten_until, $1::timestamptz)`, forgotten
	case "mysql":
		query = `UPDATE ` + table + ` SET forgotten_until = GREATEST(COALESCE(forgotten_until, 0), ?)`
	default:
		query = `UPDATE txonce_sweep SET forgotten_until = max(coalesce(forgotten_until, 0), ?)`
	}
	if _, err := db.SQL.ExecContext(ctx, query, arg); err != nil {
		return fmt.Errorf("action %s: %w", action.ID, err)
	}
	_, err = db.Store.Operator().End(ctx, action.ID, r.Note)
	return err
}
