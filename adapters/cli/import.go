package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

// importFlags are those of the command import.
type importFlags struct {
	consumer, tenant string
	source           sourceFlags
	real             realFlags
	window           time.Duration
	batch            int
	rate             float64
	reason, who      string
	yes, dry         bool
}

func (a *app) importKeys() *cobra.Command {
	f := importFlags{real: realFlags{addresses: make([]string, len(a.cfg.Sources))}}
	c := a.command("import", "Claim the keys of a hand-written table of processed messages", cobra.NoArgs,
		func(ctx context.Context, db *Database, out *printer, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return a.runImport(ctx, db, out, f)
		})
	c.Long = `Claim the keys of a hand-written table of processed messages, so that each message that the old code has
processed is a duplicate for the consumer. Consumers and the old code may run meanwhile.

Before anything is claimed, the keys are compared with the keys of real messages that the old code has processed: those
of --keys-file, or of messages that are read from a topic again (--kafka, --group, --topic, --key). If a real key is
missing, nothing is claimed, and the error shows it beside the nearest key of the table.

Rows of --time-column that are older than the window and a day are left out. Their messages have no claim then, so the
import moves the horizon of the consumer to the beginning of the window: a message of that time or earlier that has no
claim is parked as unprovable, and not handled. --dry-run shows both. A message whose source gives it no time is handled:
import such a table with --no-time, which leaves no row out.

The same command may run again at any time, after a kill too: keys that have a claim already stay as they are. Run it
once while the old code runs, and again when the old code has stopped, before the consumer starts.`
	flags := c.Flags()
	flags.StringVar(&f.consumer, "consumer", "", "Config.Name of the consumer that gets the keys (required)")
	flags.StringVar(&f.tenant, "tenant", "", "the tenant of all keys (default: keys without a tenant)")
	f.source.add(c)
	f.real.add(c, a.cfg.Sources)
	flags.DurationVar(&f.window, "window", 0, "Config.Window of a consumer that has never run on this database: "+
		dedup.DefaultWindow.String()+" if its Config does not set one")
	flags.IntVar(&f.batch, "batch", 1000, "how many keys one transaction claims")
	flags.Float64Var(&f.rate, "rate", 5_000, "how many keys to claim in a second at most; 0: no limit")
	flags.StringVar(&f.reason, "reason", "", "why; it is recorded (required)")
	addWho(c, &f.who)
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.dry, "dry-run", false, "read, compare and count, and claim nothing")
	return c
}

func (f *importFlags) check() error {
	switch {
	case f.consumer == "":
		return Usage(errors.New("--consumer is required"))
	case f.batch < 1 || f.batch > 10_000:
		return Usage(fmt.Errorf("--batch %d: want 1 to 10000", f.batch))
	case f.rate < 0:
		return Usage(fmt.Errorf("--rate %v is negative", f.rate))
	case f.window != 0 && f.window < dedup.MinWindow:
		return Usage(fmt.Errorf("--window %v is shorter than %v", f.window, dedup.MinWindow))
	case f.reason == "" && !f.dry:
		return Usage(errors.New("--reason is required: the next operator will want to know why"))
	case f.tenant != "" && f.source.tenantColumn != "":
		return Usage(errors.New("--tenant and --tenant-column are both given: want one"))
	}
	if err := (dedup.Key{Consumer: f.consumer, Tenant: f.tenant, ID: "x"}).Validate(); err != nil {
		return Usage(fmt.Errorf("--consumer or --tenant: %w", err))
	}
	if err := f.source.check(); err != nil {
		return err
	}
	return f.real.check()
}

// imported is what import has done, or would do.
type imported struct {
	version
	DryRun    bool            `json:"dry_run"`
	Consumer  string          `json:"consumer"`
	Rows      int             `json:"rows"`               // of the table
	Keys      int             `json:"keys"`               // that can be claimed, each counted once
	Repeated  int             `json:"repeated"`           // rows whose key an earlier row had
	LeftOut   int             `json:"left_out"`           // rows that are older than the window
	Horizons  []horizonObject `json:"horizons,omitempty"` // those that move because of LeftOut
	Unusable  map[flaw]int    `json:"unusable"`           // rows without a key that can be claimed
	Compared  *compared       `json:"compared"`           // null: --unchecked
	Imported  int             `json:"imported"`           // of a dry run: would be
	Claimed   int             `json:"already_claimed"`
	Busy      int             `json:"busy"` // transactions of consumers held these keys all the time
	Action    string          `json:"action,omitempty"`
	unchecked bool
}

func (a *app) runImport(ctx context.Context, db *Database, out *printer, f importFlags) error {
	if db.Claims == nil {
		return refused("this program cannot import: its Config.Open sets no Database.Claims")
	}
	window, err := a.importWindow(ctx, db, f)
	if err != nil {
		return err
	}
	sample, err := a.realKeys(ctx, f) // before the table is read, so that it has the keys of these messages
	if err != nil {
		return err
	}
	status, err := a.importStatus(ctx, db, f, window)
	if err != nil {
		return err
	}
	keys, err := readSource(ctx, db, out, f, status.Now.Add(-window), sample)
	if err != nil {
		return err
	}
	defer keys.spool.close()
	o := imported{
		version: v1(), DryRun: f.dry, Consumer: f.consumer, Rows: keys.rows, Keys: keys.distinct(),
		Repeated: keys.spool.n - keys.distinct(), LeftOut: keys.leftOut, Unusable: keys.unusable,
		unchecked: f.real.unchecked,
	}
	if o.Compared, err = a.compare(ctx, db, out, f, keys, sample); err != nil {
		return err
	}
	var move *horizonMove
	if move, o.Horizons, err = keys.parkOlder(status, f.consumer, window); err != nil {
		return err
	}
	if f.dry {
		err = a.countClaimed(ctx, db, out, f, keys, &o)
	} else {
		err = a.claimAll(ctx, db, out, f, window, keys, move, &o)
	}
	if err != nil {
		return err
	}
	if err := out.object(o, func() { printImported(out, f, keys, o) }); err != nil {
		return err
	}
	return o.findings()
}

// importWindow returns the window under which the keys are claimed: that of the consumer.
func (a *app) importWindow(ctx context.Context, db *Database, f importFlags) (time.Duration, error) {
	limited, cancel := a.limit(ctx)
	defer cancel()
	if err := db.Store.Check(limited); err != nil {
		return 0, err
	}
	known, err := db.Store.Operator().Keys().Consumers(limited)
	if err != nil {
		return 0, err
	}
	var last ops.Window
	for _, c := range known {
		for _, w := range c.Windows {
			if c.Name == f.consumer && w.UsedUntil.After(last.UsedUntil) {
				last = w
			}
		}
	}
	switch {
	case last.Window == 0 && f.window == 0:
		return 0, fmt.Errorf("%w. If its first start is still to come, give its Config.Window with --window (%v if its Config does not set one)",
			noConsumer(f.consumer, known), dedup.DefaultWindow)
	case last.Window != 0 && f.window != 0 && f.window != last.Window:
		return 0, refused("--window %v: %s runs with the window %v; leave --window out", f.window, f.consumer, last.Window)
	case last.Window != 0:
		return last.Window, nil
	}
	return f.window, nil
}

// importStatus returns what the horizon is computed from, with the window that the import claims under.
func (a *app) importStatus(ctx context.Context, db *Database, f importFlags, window time.Duration) (ops.Status, error) {
	limited, cancel := a.limit(ctx)
	defer cancel()
	s, err := db.Store.Operator().Status(limited)
	if err != nil {
		return s, err
	}
	at := slices.IndexFunc(s.Consumers, func(c ops.ConsumerStatus) bool { return c.Name == f.consumer })
	if at < 0 {
		at = len(s.Consumers)
		s.Consumers = append(s.Consumers, ops.ConsumerStatus{Name: f.consumer})
	}
	c := &s.Consumers[at]
	if len(c.Windows) == 0 {
		c.Windows = []ops.Window{{Window: window, FirstRun: s.Now, UsedUntil: s.Now}}
	}
	return s, nil
}

// claimAll asks, records the action, and claims the keys.
func (a *app) claimAll(ctx context.Context, db *Database, out *printer, f importFlags, window time.Duration,
	keys *sourceKeys, move *horizonMove, o *imported,
) error {
	older := ""
	if move != nil {
		older = fmt.Sprintf(", and park messages of %s or earlier that have no claim", instant(move.horizon))
	}
	question := fmt.Sprintf("Claim %s for %s%[3]s. This cannot be undone.\nType the name of the consumer, %[2]s, to go on: ",
		count(o.Keys, "key"), Harmless(f.consumer), older)
	if err := out.confirm(ctx, question, f.consumer, f.yes); err != nil {
		return err
	}
	if move != nil { // first: workers may run, and the table lacks the keys of these messages already
		limited, cancel := a.limit(ctx)
		err := a.moveHorizon(limited, db, *move, f.who, f.reason)
		cancel()
		if err != nil {
			return fmt.Errorf("nothing was imported: move the horizon: %w", err)
		}
	}
	var action ops.Action
	err := retry(ctx, db, a.timeout, func(ctx context.Context) (err error) {
		action, err = db.Store.Operator().Request(ctx, ops.Request{
			Kind: ops.Import, Who: f.who, Reason: f.reason, Expect: -1, Note: "keys of " + f.source.name(),
			Filter: consumer.DeadLetterFilter{Consumer: f.consumer},
		})
		return err
	})
	if err != nil {
		return err
	}
	o.Action = action.ID.String()
	im := importer{
		db: db, timeout: a.timeout, rate: f.rate, batch: f.batch, consumer: f.consumer, window: window,
		progress: newProgress(out, "keys", keys.spool.n),
	}
	err = im.run(ctx, keys.spool)
	im.progress.end()
	o.Imported, o.Busy = im.imported, im.busy
	o.Claimed = max(0, o.Keys-im.imported-im.busy) // not im.claimed: it has the repeated rows too
	note := fmt.Sprintf("%s of %s imported, %d had a claim already", count(o.Imported, "key"), f.source.name(), o.Claimed)
	if err != nil {
		err = fmt.Errorf("%s of %d claimed; the same command goes on: %w", count(im.imported+im.claimed, "row"),
			keys.spool.n, err)
		note = "it ended early: " + count(im.imported, "key") + " of " + f.source.name() + " imported"
	}
	if o.unchecked {
		note += "; not compared with real messages"
	}
	// an interrupted import is recorded too
	endErr := retry(context.WithoutCancel(ctx), db, a.timeout, func(ctx context.Context) error {
		_, err := db.Store.Operator().End(ctx, action.ID, note)
		return err
	})
	if err == nil {
		err = endErr
	}
	return err
}

// findings returns an error if a row was not imported although it is not too old: somebody should look at it.
func (o *imported) findings() error {
	unusable := 0
	for _, n := range o.Unusable {
		unusable += n
	}
	switch {
	case o.Busy > 0:
		return finding("%s held by a transaction all the time: run the same command again", counted(o.Busy, "key"))
	case unusable > 0:
		return finding("%s not imported, because they have no key that a message could have", counted(unusable, "row"))
	}
	return nil
}
