package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops/audit"
)

// auditFlags are those of the command audit.
type auditFlags struct {
	cfg                  audit.Config
	expect, group, topic string
	key, tenantHeader    string
	addresses            []string
	published            publishedFlags
}

func (a *app) audit() *cobra.Command {
	f := auditFlags{addresses: make([]string, len(a.cfg.Sources))}
	c := a.command("audit", "Compare claims with effects, acknowledged messages with claims, and the outbox with a topic", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		return a.runAudit(ctx, db, out, f)
	})
	flags := c.Flags()
	flags.StringVar(&f.cfg.Consumer, "consumer", "",
		"whose claims are compared (required, but not for --published without --per-claim)")
	flags.StringVar(&f.cfg.Tenant, "tenant", "", "check the claims of this tenant (default: claims without a tenant)")
	flags.StringVar(&f.cfg.Effects, "effects", "",
		"SQL that returns keys and their numbers of effects: SELECT order_id, count(*) FROM ledger WHERE order_id IN (:ids) GROUP BY 1")
	flags.StringVar(&f.expect, "expect", "one", "how many effects a claim has, and how many times a message of the outbox is published: one, at-least-one or at-most-one")
	flags.StringVar(&f.cfg.Reverse, "reverse", "",
		"SQL that returns the keys of effects, which must have claims: SELECT order_id FROM ledger WHERE at > now() - interval '1 day'")
	flags.IntVar(&f.cfg.Sample, "sample", 100_000, "how many to compare; 0: all")
	flags.DurationVar(&f.cfg.MaxTime, "max-time", time.Minute, "stop comparing after this time; 0: no limit")
	flags.Float64Var(&f.cfg.Rate, "rate", 5_000, "how many to compare, or to read from a topic, in a second at most; 0: no limit")
	for i, s := range a.cfg.Sources {
		if s.Reread != nil || s.Published != nil {
			flags.StringVar(&f.addresses[i], s.Flag, "",
				"the address as for check; needs --published, or --group, --topic and --key")
		}
	}
	flags.StringVar(&f.group, "group", "", "the consumer group; messages before its committed offsets must be claimed or parked")
	flags.StringVar(&f.topic, "topic", "", "the topic to re-read")
	flags.StringVar(&f.key, "key", "", "where the business key of a message is: header:NAME, json:FIELD (a path such as order.id) or id")
	flags.StringVar(&f.tenantHeader, "tenant-header", "", "the header with the tenant of a message")
	f.published.add(c)
	return c
}

type auditObject struct {
	version
	Audit    string          `json:"audit"` // claims, effects, or the flag of a broker
	Checked  int             `json:"checked"`
	Lost     int             `json:"lost"`
	Doubled  int             `json:"doubled"`
	Orphaned int             `json:"orphaned"`
	Repeated int             `json:"repeated"`
	Skipped  int             `json:"skipped"`
	NoLosses bool            `json:"lost_not_looked_for,omitempty"`
	Whole    bool            `json:"whole"`
	Bound    string          `json:"bound"`
	Notes    []string        `json:"notes,omitempty"`
	Findings []findingObject `json:"findings"`
}

type findingObject struct {
	Kind     audit.Kind `json:"kind"`
	Consumer string     `json:"consumer"`
	Tenant   string     `json:"tenant,omitempty"`
	Key      string     `json:"key"`
	ID       string     `json:"id,omitempty"` // of a message of the outbox
	Effects  int        `json:"effects"`
	Position string     `json:"position,omitempty"`
}

func (a *app) runAudit(ctx context.Context, db *Database, out *printer, f auditFlags) error {
	cfg := f.cfg
	cfg.DB, cfg.Dialect, cfg.Schema, cfg.Expect = db.SQL, db.Dialect, a.target.Schema, audit.Expect(f.expect)
	parts, err := a.auditParts(db, &cfg, f)
	if err != nil {
		return err
	}
	type result struct {
		version
		Audits []auditObject `json:"audits"`
	}
	all := result{version: v1()}
	faults := 0
	var idle []string // parts that compared nothing
	repeated, blind := 0, false
	if err := a.hasRun(ctx, db, cfg.Consumer); err != nil {
		return err
	}
	for _, part := range parts {
		p := newProgress(out, "compared ("+part.name+")", cfg.Sample)
		cfg.Progress = func(r audit.Report) { p.show(r.Checked, r.Faults()) }
		r, err := part.run(ctx)
		p.end()
		if err != nil {
			return err
		}
		faults += r.Faults()
		repeated += r.Repeated
		blind = blind || r.NoLosses && cfg.Expect != audit.AtMostOne
		if r.Checked == 0 {
			idle = append(idle, part.name)
		}
		for i := range r.Notes {
			r.Notes[i] = withFlags(r.Notes[i])
		}
		o := auditObject{
			v1(), part.name, r.Checked, r.Lost, r.Doubled, r.Orphaned, r.Repeated, r.Skipped, r.NoLosses,
			r.Whole, r.Bound(), r.Notes,
			[]findingObject{},
		}
		for _, found := range r.Findings {
			o.Findings = append(o.Findings, findingObject{
				found.Kind, found.Key.Consumer, found.Key.Tenant,
				out.key(found.Key.ID), out.key(found.ID), found.Count, out.keys.Position(found.Where, found.Key.ID,
					found.ID),
			})
		}
		all.Audits = append(all.Audits, o)
	}
	if err := out.object(all, func() {
		for _, o := range all.Audits {
			printAudit(out, o)
		}
	}); err != nil {
		return err
	}
	switch {
	case faults > repeated:
		return finding("%s; txonce explain shows what is known about a key", count(faults, "fault"))
	case repeated > 0:
		return finding("%s published more than once: a relay that dies may do that, and readers recognize a repeat by its ID; --expect at-least-one accepts repeats", count(repeated, "message"))
	case blind: // a cron job would take it for a proof
		return finding("nothing tells which messages were sent, so lost ones were not looked for: set Outbox.KeepSent in the workers' store, or give --per-claim; " +
			"--expect at-most-one accepts that")
	case len(idle) > 0:
		return finding("nothing was compared: %s", strings.Join(idle, ", "))
	}
	return nil
}

// auditPart is one comparison.
type auditPart struct {
	name string
	run  func(ctx context.Context) (audit.Report, error)
}

// auditParts returns what the flags ask for. cfg may change until the first part runs.
func (a *app) auditParts(db *Database, cfg *audit.Config, f auditFlags) (parts []auditPart, err error) {
	if cfg.Effects != "" {
		parts = append(parts, auditPart{"claims", func(ctx context.Context) (audit.Report, error) { return audit.Claims(ctx, *cfg) }})
	}
	if cfg.Reverse != "" {
		parts = append(parts, auditPart{"effects", func(ctx context.Context) (audit.Report, error) { return audit.Effects(ctx, *cfg) }})
	}
	brokers, err := a.brokerParts(db, cfg, f)
	if err != nil {
		return nil, err
	}
	check := *cfg
	if check.Consumer == "" && len(parts) == 0 && len(brokers) > 0 && f.published.alone(f) {
		check.Consumer = "-" // it is not needed
	}
	parts = append(parts, brokers...)
	switch err := check.Validate(); {
	case check.Consumer == "":
		return nil, Usage(errors.New("--consumer is required"))
	case err != nil:
		return nil, Usage(err)
	case len(parts) == 0:
		return nil, Usage(errors.New("nothing to compare: give --effects, --reverse, or the address of a broker"))
	}
	return parts, nil
}

func printAudit(out *printer, o auditObject) {
	lost := fmt.Sprintf("%d lost", o.Lost)
	if o.NoLosses {
		lost = "lost ones not looked for"
	}
	out.printf("%s: %d checked, %s, %d doubled, %d without claim, %d repeated, %d skipped\n", o.Audit, o.Checked, lost,
		o.Doubled, o.Orphaned, o.Repeated, o.Skipped)
	for _, f := range o.Findings {
		out.printf("  %-8s %s\n", f.Kind, Harmless(f.text()))
	}
	if n := o.Lost + o.Doubled + o.Orphaned + o.Repeated - len(o.Findings); n > 0 {
		out.printf("  and %d more\n", n)
	}
	for _, note := range o.Notes {
		out.printf("  %s\n", note)
	}
	out.printf("  %s\n", o.Bound)
}

// text says what was found.
func (f findingObject) text() string {
	key := f.Key
	if f.Tenant != "" {
		key = f.Tenant + "/" + key
	}
	if f.ID != "" {
		of := ""
		if key != "" {
			of = " of " + key
		}
		if f.Kind == audit.Repeated {
			return fmt.Sprintf("%s%s was published %d times, last at %s", f.ID, of, f.Effects, f.Position)
		}
		return f.ID + of + " is neither in the outbox nor on the topic"
	}
	switch {
	case f.Kind == audit.Lost && f.Position != "":
		return key + " was acknowledged at " + f.Position + ", and is neither claimed nor parked"
	case f.Kind == audit.Lost:
		return key + " has no effect"
	case f.Kind == audit.Doubled:
		return fmt.Sprintf("%s has %d effects", key, f.Effects)
	}
	return key + " has an effect without a claim"
}
