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
	"github.com/txonce/txonce/outbox"
)

// publishedFlags are those of the comparison of the outbox with a topic.
type publishedFlags struct {
	topic, idHeader, since string
	perClaim               int
}

func (p *publishedFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&p.topic, "published", "", "compare the outbox with this topic: what was sent (see KeepSent of the store) must be there, once")
	flags.IntVar(&p.perClaim, "per-claim", 0, "with --published: how many messages without an ID of their own each claim of --consumer enqueues to the topic; needs no KeepSent")
	flags.StringVar(&p.idHeader, "id-header", outbox.HeaderID,
		"with --published: the header with the ID of a message: ce_id for CloudEvents, id for Debezium's format")
	flags.StringVar(&p.since, "since", "", "with --published: only messages that were enqueued at this time or later: RFC 3339, or 24h for a day ago; with --per-claim those of the first hour are skipped, because claims do not tell their exact time")
}

// alone reports whether f asks for nothing that needs a consumer.
func (p *publishedFlags) alone(f auditFlags) bool {
	return p.topic != "" && p.perClaim == 0 && f.group == "" && f.topic == ""
}

// brokerParts returns the comparisons with a broker: those whose flag for the broker's address is set.
func (a *app) brokerParts(db *Database, cfg *audit.Config, f auditFlags) (parts []auditPart, err error) {
	for i, s := range a.cfg.Sources {
		address := f.addresses[i]
		if address == "" {
			continue
		}
		published, messages := f.published.topic != "" && s.Published != nil, f.group != "" || f.topic != ""
		if messages || !published {
			if f.group == "" || f.topic == "" || s.Reread == nil {
				return nil, Usage(fmt.Errorf("--%s needs --published, or --group and --topic", s.Flag))
			}
			key, err := keyFunc(f.key)
			if err != nil {
				return nil, err
			}
			parts = append(parts, auditPart{s.Flag, func(ctx context.Context) (audit.Report, error) {
				return a.auditMessages(ctx, db, *cfg, s, address, f, key)
			}})
		}
		if published {
			since, err := parseTime("--since", f.published.since, time.Now())
			if err != nil {
				return nil, err
			}
			if f.published.perClaim < 0 {
				return nil, Usage(fmt.Errorf("--per-claim %d is negative", f.published.perClaim))
			}
			parts = append(parts, auditPart{"outbox", func(ctx context.Context) (audit.Report, error) {
				return auditPublished(ctx, *cfg, s, address, f.published, since)
			}})
		}
	}
	if f.published.topic != "" && len(parts) == 0 {
		return nil, Usage(errors.New("--published needs the address of a broker, such as --kafka"))
	}
	return parts, nil
}

func auditPublished(ctx context.Context, cfg audit.Config, s Source, address string, p publishedFlags,
	since time.Time,
) (audit.Report, error) {
	topic, done, err := s.Published(ctx, address, p.topic)
	if err != nil {
		return audit.Report{}, err
	}
	defer done()
	return audit.Outbox(ctx, cfg, audit.OutboxConfig{
		Topic: p.topic, Published: topic, PerClaim: p.perClaim, Since: since,
		ID: func(m *consumer.Message) string { return m.Headers[p.idHeader] },
	})
}

// keyFunc reads --key.
func keyFunc(text string) (consumer.KeyFunc, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case kind == "header" && name != "":
		return consumer.HeaderKey(name), nil
	case kind == "json" && name != "" && !strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".") &&
		!strings.Contains(name, ".."):
		return consumer.JSONKey(name), nil
	case text == "id":
		return consumer.MessageID, nil
	}
	return nil, Usage(fmt.Errorf("--key %q: want header:NAME, json:FIELD or id", text))
}

func (a *app) auditMessages(ctx context.Context, db *Database, cfg audit.Config, s Source, address string, f auditFlags,
	key consumer.KeyFunc,
) (audit.Report, error) {
	of := audit.MessagesConfig{Key: key}
	if f.tenantHeader != "" {
		of.Tenant = func(m *consumer.Message) (string, error) { return m.Headers[f.tenantHeader], nil }
	}
	of.Horizon = func(ctx context.Context) (time.Time, error) {
		limited, cancel := a.limit(ctx)
		defer cancel()
		status, err := db.Store.Operator().Status(limited)
		for _, c := range status.Consumers {
			if c.Name == cfg.Consumer {
				return c.Horizon, err
			}
		}
		return time.Time{}, err
	}
	source, done, err := s.Reread(ctx, address, f.group, f.topic)
	if err != nil {
		return audit.Report{}, err
	}
	defer done()
	of.Source = source
	return audit.Messages(ctx, cfg, of)
}
