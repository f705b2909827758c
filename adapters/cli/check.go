package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// Source asks one kind of broker, for the commands check and audit.
type Source struct {
	Flag  string // names the flag that has the broker's address, such as "kafka"
	Usage string // of the flag

	// Find returns the queue or topic of a source, such as "sqs queue orders". ok is false if it is of another kind.
	Find func(source string) (name string, ok bool)

	// Check fails if the broker at address may deliver a message of the queue or topic later than window after its
	// creation.
	Check func(ctx context.Context, address, name string, window time.Duration) error

	// Warn returns an error if the queue or topic has a setting that may lose messages, but with which the workers run.
	//
	// Defaults to no warnings.
	Warn func(ctx context.Context, address, name string) error

	// Reread reads messages of a topic that a consumer group has acknowledged, at random, for the command audit. done
	// is called when no more are read.
	//
	// Defaults to nothing: audit has no such flag.
	Reread func(ctx context.Context, address, group, topic string) (source audit.Source, done func(), err error)

	// Published reads a topic of relays, for the command audit. done is called when no more is read.
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

// limits holds thresholds: check reports a value above its threshold as a problem.
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
	flags.DurationVar(&lim.transaction, "max-transaction", 5*time.Minute,
		"warn of a transaction that is open for longer")
	flags.DurationVar(&lim.sweep, "max-sweep-lag", 24*time.Hour,
		"warn when the last pass of a sweeper ended longer ago")
	flags.DurationVar(&lim.outbox, "max-outbox-age", 5*time.Minute,
		"report an error when the oldest pending message of the outbox is older")
	flags.DurationVar(&lim.waiting, "max-replay-wait", 15*time.Minute,
		"warn of a requested replay that makes no progress for longer")
	flags.Int64Var(&lim.slot, "max-slot-bytes", 1<<30, "warn of a replication slot that holds back more bytes of WAL")
	return c
}

func (c *checks) print(out *printer, strict bool) error {
	type result struct {
		version
		Checked  []string  `json:"checked"`
		Problems []problem `json:"problems"`
	}
	// errors first
	slices.SortStableFunc(c.problems, func(a, b problem) int { return strings.Compare(string(a.Level), string(b.Level)) })
	errs := 0
	for _, p := range c.problems {
		if p.Level == wrong {
			errs++
		}
	}
	r := result{version: v1(), Checked: slices.Compact(c.done), Problems: c.problems}
	if r.Problems == nil {
		r.Problems = []problem{}
	}
	if err := out.object(r, func() {
		for _, p := range c.problems {
			out.printf("%-8s %s: %s\n", p.Level, p.Check, Harmless(p.Text))
			if p.Remedy != "" {
				out.printf("%-8s %s\n", "", Harmless(p.Remedy))
			}
		}
		out.printf("checked: %s\n", strings.Join(r.Checked, ", "))
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
	limited, cancel := a.limit(ctx)
	defer cancel()
	c.done = append(c.done, "schema")
	installed, err := migrations.Installed(limited, db.SQL, db.Dialect, a.target.Schema)
	if err != nil {
		return err
	}
	latest := migrations.Latest(db.Dialect)
	switch {
	case installed == 0:
		c.add(wrong, "schema", "the tables are missing", "txonce migrate up")
	case installed < latest:
		c.add(wrong, "schema", fmt.Sprintf("the tables are at version %d of %d", installed, latest),
			"txonce migrate up")
	case installed > latest:
		c.add(warning, "schema", fmt.Sprintf("the tables are at version %d, newer than this program, which knows %d",
			installed, latest), "use the txonce of that release")
	}
	c.done = append(c.done, "settings")
	if err := db.Store.Check(limited); err != nil && installed > 0 {
		if !isRefusal(err) && limited.Err() != nil {
			return err
		}
		c.add(wrong, checkOf(err), err.Error(), "")
	}
	if installed == 0 {
		return nil
	}
	return a.checkServer(ctx, db, c, lim)
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
