package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
	"github.com/txonce/txonce/observe"
)

// Source asks one kind of broker, for the commands check and audit.
type Source struct {
	Flag  string // names the flag that has the broker's address, such as "kafka"
	Usage string // of the flag

	// Find returns the queue or topic of a source, such as "sqs queue orders". ok is false if it is of another kind.
	Find func(source string) (name string, ok bool)

	// Check fails if the broker at address may deliver a message of the queue or topic later than window after its creation.
	Check func(ctx context.Context, address, name string, window time.Duration) error

	// Reread reads messages of a topic that a consumer group has acknowledged, at random, for the command audit. done is called when no
	// more are read.
	//
	// Defaults to nothing: audit has no such flag.
	Reread func(ctx context.Context, address, group, topic string) (source audit.Source, done func(), err error)

	// Published reads a topic to which a relay publishes, for the command audit. done is called when no more is read.
	//
	// Defaults to nothing: audit cannot compare the outbox with the topics of this broker.
	Published func(ctx context.Context, address, topic string) (of audit.Topic, done func(), err error)
}

// level says how bad a problem is.
type level string

const (
	wrong   level = "error"   // messages are lost, doubled or stuck, or will be
	warning level = "warning" // somebody should look
)

type problem struct {
	Level  level  `json:"level"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// checks collects problems.
type checks struct {
	problems []problem
	done     []string // names of the checks that were made
}

func (c *checks) add(l level, check, text, remedy string) {
	c.problems = append(c.problems, problem{l, check, text, remedy})
}

// limits are from when on something is a problem.
type limits struct {
	transaction, sweep, outbox, waiting time.Duration
	slot                                int64 // bytes
}

func (a *app) check() *cobra.Command {
	addresses := make([]string, len(a.cfg.Sources))
	var strict bool
	var lim limits
	c := a.command("check", "Look for settings and states that lose, double or stop messages", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		c := &checks{}
		if err := a.checkDatabase(ctx, db, c, lim); err != nil {
			return err
		}
		if err := a.checkStatus(ctx, db, c, lim, addresses); err != nil {
			return err
		}
		return c.print(out, strict)
	})
	flags := c.Flags()
	for i, s := range a.cfg.Sources {
		flags.StringVar(&addresses[i], s.Flag, "", s.Usage)
	}
	flags.BoolVar(&strict, "strict", false, "exit with 1 for warnings too")
	flags.DurationVar(&lim.transaction, "max-transaction", 5*time.Minute, "how long a transaction may be open")
	flags.DurationVar(&lim.sweep, "max-sweep-lag", 24*time.Hour, "how long ago the last pass of a sweeper may have ended")
	flags.DurationVar(&lim.outbox, "max-outbox-age", 5*time.Minute, "how old the oldest pending message may be")
	flags.DurationVar(&lim.waiting, "max-replay-wait", 15*time.Minute, "how long a requested replay may make no progress")
	flags.Int64Var(&lim.slot, "max-slot-bytes", 1<<30, "how many bytes of WAL a replication slot may hold back")
	return c
}

func (c *checks) print(out *printer, strict bool) error {
	type result struct {
		version
		Checked  []string  `json:"checked"`
		Problems []problem `json:"problems"`
	}
	slices.SortStableFunc(c.problems, func(a, b problem) int { return strings.Compare(string(a.Level), string(b.Level)) }) // errors first
	errs := 0
	for _, p := range c.problems {
		if p.Level == wrong {
			errs++
		}
	}
	r := result{version: v1(), Checked: c.done, Problems: c.problems}
	if r.Problems == nil {
		r.Problems = []problem{}
	}
	if err := out.object(r, func() {
		for _, p := range c.problems {
			out.printf("%-8s %s: %s\n", p.Level, p.Check, oneLine(p.Text))
			if p.Remedy != "" {
				out.printf("%-8s %s\n", "", oneLine(p.Remedy))
			}
		}
		out.printf("checked: %s\n", strings.Join(c.done, ", "))
	}); err != nil {
		return err
	}
	if errs > 0 || strict && len(c.problems) > 0 {
		return finding("%s and %s", count(errs, "error"), count(len(c.problems)-errs, "warning"))
	}
	return nil
}

// checkDatabase looks at the schema and the settings.
func (a *app) checkDatabase(ctx context.Context, db *Database, c *checks, lim limits) error {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	c.done = append(c.done, "schema")
	installed, err := migrations.Installed(ctx, db.SQL, db.Dialect, a.target.Schema)
	if err != nil {
		return err
	}
	latest := migrations.Latest(db.Dialect)
	switch {
	case installed == 0:
		c.add(wrong, "schema", "the tables are missing", "txonce migrate up")
	case installed < latest:
		c.add(wrong, "schema", fmt.Sprintf("the tables are at version %d of %d", installed, latest), "txonce migrate up")
	case installed > latest:
		c.add(warning, "schema", fmt.Sprintf("the tables are at version %d, newer than this program, which knows %d", installed, latest), "use the txonce of that release")
	}
	c.done = append(c.done, "settings")
	if err := db.Store.Check(ctx); err != nil && installed > 0 {
		if !isRefusal(err) && ctx.Err() != nil {
			return err
		}
		c.add(wrong, checkOf(err), err.Error(), "")
	}
	if installed == 0 {
		return nil
	}
	return checkServer(ctx, db, c, lim)
}

// checkOf names the check that a store's error is about.
func checkOf(err error) string {
	switch {
	case errors.Is(err, dedup.ErrNotDurable):
		return "durability"
	case errors.Is(err, dedup.ErrSchema):
		return "schema"
	case errors.Is(err, dedup.ErrAccess):
		return "access"
	}
	return "settings"
}

// checkStatus looks at consumers, the outbox and the sweeper.
func (a *app) checkStatus(ctx context.Context, db *Database, c *checks, lim limits, addresses []string) error {
	limited, cancel := a.limit(ctx)
	defer cancel()
	if installed, err := migrations.Installed(limited, db.SQL, db.Dialect, a.target.Schema); err != nil || installed < latestStatus {
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
	c.done = append(c.done, "consumers", "outbox", "sweeper", "replays")
	for _, consumer := range s.Consumers {
		checkConsumer(c, s.Now, consumer)
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
const latestStatus = 3

func checkConsumer(c *checks, now time.Time, consumer ops.ConsumerStatus) {
	for _, l := range consumer.Letters {
		text := fmt.Sprintf("%s of %s: %s", counted(l.Count, "letter"), consumer.Name, l.Reason)
		look := "txonce dead-letters list --consumer " + consumer.Name + " --cause " + string(l.Reason)
		switch l.Reason {
		case observe.CauseUnprovable:
			c.add(wrong, "window", text+": messages arrive later than keys are remembered", look+"; then set a longer Window")
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
		c.add(warning, "window", fmt.Sprintf("%s has used %s within the last day", consumer.Name, strings.Join(used, " and ")),
			"unless the Window was changed today, processes with different settings run")
	}
}

func checkOutbox(c *checks, s ops.Status, lim limits) {
	o := s.Outbox
	if len(o.Relays) == 0 && o.Pending > 0 {
		c.add(wrong, "relay", fmt.Sprintf("%s pending and no relay is alive", counted(int(o.Pending), "message")), "start a worker with a relay")
	} else if o.PendingAge > lim.outbox {
		c.add(wrong, "outbox", fmt.Sprintf("the oldest pending message is %s old", ago(o.PendingAge)), "txonce status names the topic and the cause")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Topics)) {
		t := o.Topics[name]
		if t.Failing > 0 {
			c.add(wrong, "topic", fmt.Sprintf("topic %s: %s failing: %s", name, counted(int(t.Failing), "message"), t.Cause), "")
		}
		if t.Parked > 0 {
			c.add(warning, "parked", fmt.Sprintf("topic %s: %s parked, %d wait behind them", name, counted(int(t.Parked), "message"), t.Waiting),
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
		c.add(warning, "sweeper", "no sweeper has ever reached the end of the table: expired keys stay", "run a dedup.Sweeper in every worker, or txonce sweep --once")
	case !s.Sweep.LastPass.IsZero() && s.Sweep.Lag > lim.sweep:
		c.add(warning, "sweeper", fmt.Sprintf("the last pass of a sweeper ended %s ago: expired keys stay", ago(s.Sweep.Lag)),
			"run a dedup.Sweeper in every worker; its log says why it stopped")
	}
}

func checkReplays(ctx context.Context, db *Database, c *checks, s ops.Status, lim limits) error {
	open, err := db.Store.Operator().Actions(ctx, ops.ActionFilter{Kind: ops.Replay, Open: true})
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
			c.add(warning, "replays", fmt.Sprintf("action %s: %d letters of %s wait, with no progress for %s", action.ID, action.Waiting, action.Consumer, ago(still)),
				"run consumer.RunReplays in the workers, or end it: txonce actions end "+action.ID.String())
		}
	}
	return nil
}

// checkSource compares the windows of consumers with how long the broker keeps messages.
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
			}
		}
	}
	if !found {
		c.add(warning, source.Flag, "no consumer that has run lately receives from it", "")
	}
}
