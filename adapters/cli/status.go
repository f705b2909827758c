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
)

func (a *app) status() *cobra.Command {
	var watch time.Duration
	c := a.command("status", "Show consumers, dead letters, the outbox and the sweeper", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		if watch < 0 {
			return Usage(fmt.Errorf("--watch %v is negative", watch))
		}
		for {
			once, cancel := a.limit(ctx)
			s, err := db.Store.Operator().Status(once)
			var p pauses
			if err == nil {
				p, err = db.pauses(once, s.Now)
			}
			cancel()
			if err != nil {
				return err
			}
			if watch > 0 && out.screen && !out.json {
				out.printf("\x1b[H\x1b[2J") // a fresh screen
			}
			if err := out.object(statusJSON(db, s, p), func() { printStatus(out, db, s, p) }); err != nil {
				return err
			}
			if watch == 0 {
				return nil
			}
			timer := time.NewTimer(watch)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		}
	})
	c.Flags().DurationVar(&watch, "watch", 0, "print it again at this interval, until interrupted")
	return c
}

func printStatus(out *printer, db *Database, s ops.Status, p pauses) {
	out.printf("%s, schema %d, %s\n\n", db.Dialect, s.Schema, instant(s.Now))
	rows := [][]string{{"CONSUMER", "LETTERS", "WAITING", "WINDOW", "HORIZON", "SOURCES"}}
	for _, c := range s.Consumers {
		rows = append(rows, []string{
			c.Name, letters(c.Letters), fmt.Sprint(c.Waiting), windows(c.Windows, s.Now),
			instant(c.Horizon), sources(c.Sources),
		})
	}
	if len(s.Consumers) > 0 {
		out.table(rows)
	} else {
		out.printf("no consumer has run yet\n")
	}
	printPositions(out, s)
	for _, name := range slices.Sorted(maps.Keys(p.causes)) {
		out.printf("%s is paused: %s\n", Harmless(name), p.causes[name])
	}
	if silent := p.silent(s.Consumers); len(silent) > 0 {
		out.printf("pauses: not reported for %s: no worker of it with an ops.Recorder runs, or it has had no message yet\n", strings.Join(silent, ", "))
	}
	o := s.Outbox
	about := ""
	if o.Estimated {
		about = "about "
	}
	out.printf("\noutbox: %s%d pending, oldest %s; %d delayed, %d parked, %d waiting behind them\n", about, o.Pending,
		ago(o.PendingAge), o.Delayed, o.Parked, o.Waiting)
	if len(o.Topics) > 0 {
		rows = [][]string{{"TOPIC", "PENDING", "OLDEST", "DELAYED", "PARKED", "WAITING", "FAILING", "ERROR"}}
		for _, topic := range slices.Sorted(maps.Keys(o.Topics)) {
			t := o.Topics[topic]
			rows = append(rows, []string{
				topic, fmt.Sprint(t.Pending), ago(t.PendingAge), fmt.Sprint(t.Delayed), fmt.Sprint(t.Parked),
				fmt.Sprint(t.Waiting), fmt.Sprint(t.Failing), t.Error,
			})
		}
		out.table(rows)
	}
	if len(o.Relays) == 0 {
		out.printf("relays: none is alive\n")
	} else {
		names := make([]string, len(o.Relays))
		for i, r := range o.Relays {
			names[i] = fmt.Sprintf("%s (%d shards)", Harmless(r.Name), r.Shards)
		}
		out.printf("relays: %s\n", strings.Join(names, ", "))
	}
	out.printf("sweeper: %s\n", sweep(s))
}

func letters(counts []ops.LetterCount) string {
	total, capped := 0, false
	var parts []string
	for _, l := range counts {
		total, capped = total+l.Count, capped || l.Capped
		parts = append(parts, fmt.Sprintf("%d %s", l.Count, l.Cause))
	}
	if total == 0 {
		return "0"
	}
	if capped {
		return fmt.Sprintf("more than %d", ops.MaxCount)
	}
	return fmt.Sprintf("%d (%s)", total, strings.Join(parts, ", "))
}

// windows names those windows that claims were made with lately.
func windows(all []ops.Window, now time.Time) string {
	var used []string
	for _, w := range all {
		if w.UsedUntil.After(now) || len(all) == 1 {
			used = append(used, ago(w.Window))
		}
	}
	return strings.Join(used, ", ")
}

func sources(all []ops.Source) string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

func sweep(s ops.Status) string {
	var parts []string
	if s.Sweep.LastPass.IsZero() {
		parts = append(parts, "no pass has ended yet")
	} else {
		parts = append(parts, "last pass ended "+ago(s.Sweep.Lag)+" ago")
	}
	if s.Sweep.LeaseUntil.After(s.Now) {
		parts = append(parts, "sweeper "+Harmless(s.Sweep.Owner)+" has the lease until "+instant(s.Sweep.LeaseUntil))
	}
	if !s.Sweep.Forgotten.IsZero() {
		parts = append(parts, "keys that expire by "+instant(s.Sweep.Forgotten)+" may be deleted")
	}
	if s.Sweep.Keys >= 0 {
		parts = append(parts, fmt.Sprintf("about %d keys", s.Sweep.Keys))
	}
	return strings.Join(parts, ", ")
}
