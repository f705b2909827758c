package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
)

// auditFlags are those of the command audit.
type auditFlags struct {
	cfg                  audit.Config
	expect, group, topic string
	key, tenantHeader    string
	addresses            []string
}

func (a *app) audit() *cobra.Command {
	f := auditFlags{addresses: make([]string, len(a.cfg.Sources))}
	c := a.command("audit", "Compare claims with effects, and acknowledged messages with claims", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		return a.runAudit(ctx, db, out, f)
	})
	flags := c.Flags()
	flags.StringVar(&f.cfg.Consumer, "consumer", "", "whose claims are compared (required)")
	flags.StringVar(&f.cfg.Tenant, "tenant", "", "check the claims of this tenant (default: claims without a tenant)")
	flags.StringVar(&f.cfg.Effects, "effects", "", "SQL that returns keys and their numbers of effects: SELECT order_id, count(*) FROM ledger WHERE order_id IN (:ids) GROUP BY 1")
	flags.StringVar(&f.expect, "expect", "one", "how many effects a claim has: one, at-least-one or at-most-one")
	flags.StringVar(&f.cfg.Reverse, "reverse", "", "SQL that returns the keys of effects, which must have claims: SELECT order_id FROM ledger WHERE at > now() - interval '1 day'")
	flags.IntVar(&f.cfg.Sample, "sample", 100_000, "how many to compare; 0: all")
	flags.DurationVar(&f.cfg.MaxTime, "max-time", time.Minute, "end then; 0: no limit")
	flags.Float64Var(&f.cfg.Rate, "rate", 20_000, "how many to compare in a second at most; 0: no limit")
	for i, s := range a.cfg.Sources {
		if s.Reread != nil {
			flags.StringVar(&f.addresses[i], s.Flag, "", "re-read acknowledged messages: the address as for check; needs --group, --topic and --key")
		}
	}
	flags.StringVar(&f.group, "group", "", "the consumer group; messages before its committed offsets must be claimed or parked")
	flags.StringVar(&f.topic, "topic", "", "the topic to re-read")
	flags.StringVar(&f.key, "key", "", "where the natural key of a message is: header:NAME, json:FIELD (a path such as order.id) or id")
	flags.StringVar(&f.tenantHeader, "tenant-header", "", "the header with the tenant of a message")
	return c
}

type auditObject struct {
	version
	Audit    string          `json:"audit"` // claims, effects, or the flag of a broker
	Checked  int             `json:"checked"`
	Lost     int             `json:"lost"`
	Doubled  int             `json:"doubled"`
	Orphaned int             `json:"orphaned"`
	Skipped  int             `json:"skipped"`
	Whole    bool            `json:"whole"`
	Bound    string          `json:"bound"`
	Findings []findingObject `json:"findings"`
}

type findingObject struct {
	Kind     audit.Kind `json:"kind"`
	Consumer string     `json:"consumer"`
	Tenant   string     `json:"tenant,omitempty"`
	Key      string     `json:"key"`
	Effects  int        `json:"effects"`
	Position string     `json:"position,omitempty"`
}

func (a *app) runAudit(ctx context.Context, db *Database, out *printer, f auditFlags) error {
	cfg := f.cfg
	cfg.DB, cfg.Dialect, cfg.Schema, cfg.Expect = db.SQL, db.Dialect, a.target.Schema, audit.Expect(f.expect)
	if cfg.Consumer == "" {
		return usage(errors.New("--consumer is required"))
	}
	if err := cfg.Validate(); err != nil {
		return usage(err)
	}
	type part struct {
		name string
		run  func(ctx context.Context) (audit.Report, error)
	}
	var parts []part
	if cfg.Effects != "" {
		parts = append(parts, part{"claims", func(ctx context.Context) (audit.Report, error) { return audit.Claims(ctx, cfg) }})
	}
	if cfg.Reverse != "" {
		parts = append(parts, part{"effects", func(ctx context.Context) (audit.Report, error) { return audit.Effects(ctx, cfg) }})
	}
	for i, s := range a.cfg.Sources {
		if f.addresses[i] != "" {
			key, err := keyFunc(f.key)
			if err != nil {
				return err
			}
			if f.group == "" || f.topic == "" {
				return usage(fmt.Errorf("--%s needs --group and --topic", s.Flag))
			}
			parts = append(parts, part{s.Flag, func(ctx context.Context) (audit.Report, error) {
				return a.auditMessages(ctx, db, cfg, s, f.addresses[i], f, key)
			}})
		}
	}
	if len(parts) == 0 {
		return usage(errors.New("nothing to compare: give --effects, --reverse, or the address of a broker"))
	}
	type result struct {
		version
		Audits []auditObject `json:"audits"`
	}
	all := result{version: v1()}
	faults := 0
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
		o := auditObject{v1(), part.name, r.Checked, r.Lost, r.Doubled, r.Orphaned, r.Skipped, r.Whole, r.Bound(), []findingObject{}}
		for _, found := range r.Findings {
			o.Findings = append(o.Findings, findingObject{found.Kind, found.Key.Consumer, found.Key.Tenant, out.key(found.Key.ID), found.Count, found.Where})
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
	if faults > 0 {
		return finding("%s; txonce explain shows what is known about a key", count(faults, "fault"))
	}
	return nil
}

func printAudit(out *printer, o auditObject) {
	out.printf("%s: %d checked, %d lost, %d doubled, %d without claim, %d skipped\n", o.Audit, o.Checked, o.Lost, o.Doubled, o.Orphaned, o.Skipped)
	for _, f := range o.Findings {
		key := f.Key
		if f.Tenant != "" {
			key = f.Tenant + "/" + key
		}
		what := map[audit.Kind]string{audit.Lost: "has no effect", audit.Doubled: fmt.Sprintf("has %d effects", f.Effects), audit.Orphaned: "has an effect without a claim"}[f.Kind]
		if f.Position != "" {
			what = "was acknowledged at " + f.Position + ", and is neither claimed nor parked"
		}
		out.printf("  %-8s %s %s\n", f.Kind, oneLine(key), what)
	}
	if n := o.Lost + o.Doubled + o.Orphaned - len(o.Findings); n > 0 {
		out.printf("  and %d more\n", n)
	}
	out.printf("  %s\n", o.Bound)
}

// keyFunc reads --key.
func keyFunc(text string) (consumer.KeyFunc, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case kind == "header" && name != "":
		return consumer.HeaderKey(name), nil
	case kind == "json" && name != "" && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".") && !strings.Contains(name, ".."):
		return consumer.JSONKey(name), nil
	case text == "id":
		return consumer.MessageID, nil
	}
	return nil, usage(fmt.Errorf("--key %q: want header:NAME, json:FIELD or id", text))
}

func (a *app) auditMessages(ctx context.Context, db *Database, cfg audit.Config, s Source, address string, f auditFlags, key consumer.KeyFunc) (audit.Report, error) {
	of := audit.MessagesConfig{Key: key}
	if f.tenantHeader != "" {
		of.Tenant = func(m *consumer.Message) (string, error) { return m.Headers[f.tenantHeader], nil }
	}
	limited, cancel := a.limit(ctx)
	status, err := db.Store.Operator().Status(limited)
	cancel()
	if err != nil {
		return audit.Report{}, err
	}
	for _, c := range status.Consumers {
		if c.Name == cfg.Consumer {
			of.Since = c.Horizon
		}
	}
	source, done, err := s.Reread(ctx, address, f.group, f.topic)
	if err != nil {
		return audit.Report{}, err
	}
	defer done()
	of.Source = source
	return audit.Messages(ctx, cfg, of)
}
