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
	c := a.command("set CONSUMER TIME", "Say that claims of messages up to TIME may be missing although their effects are there", cobra.ExactArgs(2),
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
			move, err := horizonFor(s, args[0], to)
			if err != nil {
				return err
			}
			o := horizonsObject{version: v1(), DryRun: dry, Horizons: horizonsAfter(s, move)}
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
			if err := a.moveHorizon(writing, db, move, who, reason); err != nil {
				return err
			}
			return out.object(o, func() { out.printf("%s", text) })
		})
	c.Long = `Say that claims of messages up to TIME may be missing although the effects of these messages are there: somebody
deleted or emptied processed_messages, restored that table alone, or moved the effects here without their keys. From
then on, a message of TIME or earlier that has no claim is parked as unprovable, and not handled.

Do not use it after a failover that lost commits, or after the restore of the whole database: then claims and effects
are gone together, and the horizon would park the messages that must be handled again.`
	c.Flags().StringVar(&reason, "reason", "", "why; it is recorded (required)")
	addWho(c, &who)
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().BoolVar(&acceptParking, "accept-parking", false,
		"also if messages that other consumers get from now on are parked as unprovable for some time")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the horizons of all consumers that would result, and change nothing")
	return c
}

// horizonMove is what the database must have so that a consumer gets a later horizon.
type horizonMove struct {
	consumer  string
	horizon   time.Time // that was asked for
	forgotten time.Time // all claims that expired up to then count as deleted

	// since is not zero if the consumer must count as having run with window since then: it first ran later, so that
	// without this no claim of that time could be missing.
	window time.Duration
	since  time.Time
}

// uses returns the windows of c after the move.
func (m horizonMove) uses(c ops.ConsumerStatus) []driver.WindowUse {
	all := make([]driver.WindowUse, len(c.Windows))
	for i, w := range c.Windows {
		all[i] = driver.WindowUse{Window: w.Window, FirstRun: w.FirstRun, UsedUntil: w.UsedUntil}
		if c.Name == m.consumer && w.Window == m.window && m.since.Before(w.FirstRun) {
			all[i].FirstRun = m.since
		}
	}
	return all
}

// horizonsAfter returns the horizons of all consumers after the move.
func horizonsAfter(s ops.Status, m horizonMove) []horizonObject {
	horizons := make([]horizonObject, len(s.Consumers))
	for i, c := range s.Consumers {
		horizons[i] = horizonObject{
			Consumer: c.Name, Before: jsonTime(c.Horizon),
			Horizon: jsonTime(driver.Horizon(m.forgotten, m.uses(c))),
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

// horizonFor returns the move that gives a consumer the horizon to. The database keeps one expiry of deleted claims, for
// all consumers, so the horizons of others move too.
func horizonFor(s ops.Status, name string, to time.Time) (m horizonMove, err error) {
	for _, c := range s.Consumers {
		if c.Name != name {
			continue
		}
		if latest := s.Now.Add(-dedup.MinWindow); to.After(latest) {
			return m, refused("the horizon cannot be later than %s: stores do not look for it when a message is younger than %v. "+
				"Nothing was changed: keep the workers stopped until %s, and run this command again then",
				instant(latest), dedup.MinWindow, instant(to.Add(dedup.MinWindow)))
		}
		if !to.After(c.Horizon) {
			return m, refused("the horizon of %s is %s already, and it cannot go back: claims are deleted",
				name, instant(c.Horizon))
		}
		m.consumer, m.horizon = name, to
		var last ops.Window
		for _, w := range c.Windows { // the shortest first
			m.forgotten = to.Add(w.Window)
			if h := driver.Horizon(m.forgotten, m.uses(c)); !h.Before(to) {
				return m, nil
			}
			if w.UsedUntil.After(last.UsedUntil) {
				last = w
			}
		}
		// It first ran later than that. Its keys may be those of a table that it did not write.
		m.window, m.since, m.forgotten = last.Window, to, to.Add(last.Window)
		if h := driver.Horizon(m.forgotten, m.uses(c)); last.Window == 0 || h.Before(to) {
			return m, refused("no worker of %s ran within a window of %s, so no claim for a message of that time can be missing", name, instant(to))
		}
		return m, nil
	}
	return m, noConsumer(name, s.Consumers)
}

// moveHorizon records the action, and then makes the move.
func (a *app) moveHorizon(ctx context.Context, db *Database, m horizonMove, who, reason string) error {
	note := "horizon of " + m.consumer + ": " + m.horizon.UTC().Format(time.RFC3339)
	action, err := db.Store.Operator().Request(ctx, ops.Request{
		Kind: ops.Horizon, Who: who, Reason: reason, Note: note, Expect: -1,
	})
	if err != nil {
		return err
	}
	sweep, windows := a.table(db, "txonce_sweep"), a.table(db, "txonce_windows")
	var expire, use string
	at := func(t time.Time) any { return t.UnixMicro() }
	switch db.Dialect {
	case "postgres":
		expire = `UPDATE ` + sweep + ` SET forgotten_until = greatest(forgotten_until, $1::timestamptz)`
		use = `INSERT INTO ` + windows + ` AS w (consumer, window_seconds, first_run, used_until)
VALUES ($1, $2::bigint, $3::timestamptz, $3::timestamptz)
ON CONFLICT (consumer, window_seconds) DO UPDATE SET first_run = least(w.first_run, excluded.first_run)`
		at = func(t time.Time) any { return t }
	case "mysql":
		expire = `UPDATE ` + sweep + ` SET forgotten_until = GREATEST(COALESCE(forgotten_until, 0), ?)`
		use = `INSERT INTO ` + windows + ` (consumer, window_seconds, first_run, used_until) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE first_run = LEAST(first_run, VALUES(first_run))`
	default:
		expire = `UPDATE txonce_sweep SET forgotten_until = max(coalesce(forgotten_until, 0), ?)`
		use = `INSERT INTO txonce_windows (consumer, window_seconds, first_run, used_until) VALUES (?, ?, ?, ?)
ON CONFLICT (consumer, window_seconds) DO UPDATE SET first_run = min(first_run, excluded.first_run)`
	}
	if !m.since.IsZero() {
		args := []any{m.consumer, int64(m.window / time.Second), at(m.since), at(m.since)}
		if db.Dialect == "postgres" {
			args = args[:3]
		}
		if _, err := db.SQL.ExecContext(ctx, use, args...); err != nil {
			return fmt.Errorf("action %s: %w", action.ID, err)
		}
	}
	if _, err := db.SQL.ExecContext(ctx, expire, at(m.forgotten)); err != nil {
		return fmt.Errorf("action %s: %w", action.ID, err)
	}
	_, err = db.Store.Operator().End(ctx, action.ID, note)
	return err
}
