package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/observe"
)

// checkStatus looks at consumers, the outbox and the sweeper.
func (a *app) checkStatus(ctx context.Context, db *Database, c *checks, lim limits, addresses []string) error {
	limited, cancel := a.limit(ctx)
	defer cancel()
	if installed, err := migrations.Installed(limited, db.SQL, db.Dialect, a.target.Schema); err != nil ||
		installed < latestStatus {
		return err // checkDatabase has said it
	}
	s, err := db.Store.Operator().Status(limited)
	if err != nil {
		if isRefusal(err) {
			c.add(wrong, "schema", err.Error(), "")
			return nil
		}
		return err
	}
	c.done = append(c.done, "consumers", "positions", "outbox", "sweeper", "replays")
	for _, consumer := range s.Consumers {
		checkConsumer(c, s.Now, consumer)
		checkPositions(c, s.Now, consumer)
	}
	checkOutbox(c, s, lim)
	checkSweep(c, s, lim)
	if err := checkReplays(limited, db, c, s, lim); err != nil {
		return err
	}
	for i, source := range a.cfg.Sources {
		if addresses[i] == "" {
			continue
		}
		c.done = append(c.done, source.Flag)
		a.checkSource(ctx, c, s, source, addresses[i])
	}
	return ctx.Err()
}

// latestStatus is the first version of the schema with the tables that Status reads.
const latestStatus = 10

func checkConsumer(c *checks, now time.Time, consumer ops.ConsumerStatus) {
	for _, l := range consumer.Letters {
		text := fmt.Sprintf("%s of %s: %s", count(l.Count, "dead letter"), consumer.Name, l.Cause)
		if l.Count > ops.MaxCount {
			text = fmt.Sprintf("more than %d dead letters of %s: %s", ops.MaxCount, consumer.Name, l.Cause)
		}
		look := "txonce dead-letters list --consumer " + consumer.Name + " --cause " + string(l.Cause)
		switch l.Cause {
		case observe.CauseUnprovable:
			c.add(wrong, "window", text+": messages arrive when their keys may have been deleted",
				look+"; then set a longer Window, unless an operator moved the horizon: txonce actions list")
		case observe.CauseUnknown:
			c.add(wrong, "letters", text+": its effects may be committed", look)
		default:
			c.add(warning, "letters", text, look)
		}
	}
	var used []string
	for _, w := range consumer.Windows {
		if w.UsedUntil.After(now) {
			used = append(used, ago(w.Window))
		}
	}
	if len(used) > 1 {
		c.add(warning, "window", fmt.Sprintf("%s has used %s within the last day", consumer.Name,
			strings.Join(used, " and ")),
			"unless the Window was changed today, processes with different settings run")
	}
}

func checkOutbox(c *checks, s ops.Status, lim limits) {
	o := s.Outbox
	switch old := o.PendingAge > lim.outbox; {
	case len(o.Relays) == 0 && o.Pending > 0:
		bad := warning // during a deployment it may be so for a moment
		if old {
			bad = wrong
		}
		c.add(bad, "relay", fmt.Sprintf("%s pending for up to %s and no relay is alive",
			counted(int(o.Pending), "message"), ago(o.PendingAge)),
			"start a worker with a relay, unless another program reads outbox_messages")
	case old:
		c.add(wrong, "outbox", fmt.Sprintf("the oldest pending message is %s old", ago(o.PendingAge)),
			"txonce status names the topic and the error")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Topics)) {
		t := o.Topics[name]
		if t.Failing > 0 {
			c.add(wrong, "topic", fmt.Sprintf("topic %s: %s failing: %s", name, counted(int(t.Failing), "message"),
				t.Error), "")
		}
		if t.Parked > 0 {
			c.add(warning, "parked", fmt.Sprintf("topic %s: %s parked, %d wait behind them", name,
				counted(int(t.Parked), "message"), t.Waiting),
				"txonce outbox list --topic "+name)
		}
	}
}

func checkSweep(c *checks, s ops.Status, lim limits) {
	first := time.Time{} // when the oldest window was used first
	for _, consumer := range s.Consumers {
		for _, w := range consumer.Windows {
			if first.IsZero() || w.FirstRun.Before(first) {
				first = w.FirstRun
			}
		}
	}
	switch {
	case s.Sweep.LastPass.IsZero() && !first.IsZero() && s.Now.Sub(first) > lim.sweep:
		c.add(warning, "sweeper", "no sweeper has ever reached the end of the table: expired keys stay",
			"run a dedup.Sweeper in every worker, or txonce sweep --once")
	case !s.Sweep.LastPass.IsZero() && s.Sweep.Lag > lim.sweep:
		c.add(warning, "sweeper", fmt.Sprintf("the last pass of a sweeper ended %s ago: expired keys stay",
			ago(s.Sweep.Lag)),
			"run a dedup.Sweeper in every worker; its log says why it stopped")
	}
}

func checkReplays(ctx context.Context, db *Database, c *checks, s ops.Status, lim limits) error {
	// only replays and repairs have letters that wait
	open, err := db.Store.Operator().Actions(ctx, ops.ActionFilter{Open: true})
	if err != nil {
		return err
	}
	for _, action := range open {
		moved := action.Requested
		if results, err := db.Store.Operator().Results(ctx, ops.ResultFilter{Action: action.ID, Limit: 1}); err != nil {
			return err
		} else if len(results) > 0 && results[0].At.After(moved) {
			moved = results[0].At
		}
		if still := s.Now.Sub(moved); action.Waiting > 0 && still > lim.waiting {
			c.add(warning, "replays", fmt.Sprintf("action %s: %d letters of %s wait, with no progress for %s",
				action.ID, action.Waiting, action.Consumer, ago(still)),
				"run Consumer.RunReplays in the workers, or end the replay: txonce actions end "+action.ID.String()+" --reason TEXT")
		}
	}
	return nil
}

// checkSource compares the windows of consumers with how long the broker keeps messages, and looks at the broker's
// settings.
func (a *app) checkSource(ctx context.Context, c *checks, s ops.Status, source Source, address string) {
	found := false
	for _, consumer := range s.Consumers {
		var window time.Duration // the shortest in use
		for _, w := range consumer.Windows {
			if w.UsedUntil.After(s.Now) && (window == 0 || w.Window < window) {
				window = w.Window
			}
		}
		for _, used := range consumer.Sources {
			name, ok := source.Find(used.Name)
			if !ok || window == 0 {
				continue
			}
			found = true
			limited, cancel := a.limit(ctx)
			err := source.Check(limited, address, name, window)
			cancel()
			if err != nil {
				c.add(wrong, source.Flag, fmt.Sprintf("consumer %s: %v", consumer.Name, err), "")
				continue // one line for a topic that cannot be read
			}
			if source.Warn == nil {
				continue
			}
			limited, cancel = a.limit(ctx)
			err = source.Warn(limited, address, name)
			cancel()
			if err != nil {
				c.add(warning, source.Flag, fmt.Sprintf("consumer %s: %v", consumer.Name, err), "")
			}
		}
	}
	if !found {
		c.add(warning, source.Flag, "no consumer that has run lately receives from it", "")
	}
}
