package main

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer"
	txaudit "github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/outbox"
)

// The auditor of txonce (txonce audit) knows nothing of the plan. It compares claims with the ledger, and claims with
// the topic of events, as an operator would. It runs now and then beside the workers, and at the end.

// audited is what the auditor found.
type audited struct {
	Claims     int // claims that were compared at the end
	Lost       int // claims without a charge
	Doubled    int // claims with several charges
	EventsLost int // claims without an event
	Meanwhile  int // claims that were compared beside the workers
	False      int // findings beside the workers: they would be false, unless the workers are broken
}

func (f *audited) faults() int { return f.Lost + f.Doubled + f.EventsLost + f.False }

// auditorSample limits what the auditor compares.
const auditorSample = 100_000

func (d *database) auditConfig() txaudit.Config {
	return txaudit.Config{
		DB: d.db, Dialect: d.dialect, Consumer: "billing", Sample: auditorSample,
		Effects: `SELECT order_id, count(*) FROM ledger WHERE order_id IN (:ids) GROUP BY order_id`,
	}
}

// auditMeanwhile compares claims once a second until ctx ends.
func (d *database) auditMeanwhile(ctx context.Context, found *audited) error {
	cfg := d.auditConfig()
	cfg.Rate, cfg.MaxTime = 20_000, time.Second
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		r, err := txaudit.Claims(ctx, cfg)
		found.Meanwhile += r.Checked
		found.False += r.Faults()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// audit compares everything once, when the workers have ended. topic has the IDs of the published events.
func (d *database) audit(ctx context.Context, topic string, ids []string, found *audited) error {
	cfg := d.auditConfig()
	r, err := txaudit.Claims(ctx, cfg)
	if err != nil {
		return err
	}
	found.Claims, found.Lost, found.Doubled = r.Checked, r.Lost, r.Doubled
	cfg.Expect = txaudit.AtLeastOne // a relay that is killed may have published an event that is published again
	r, err = txaudit.Outbox(ctx, cfg, txaudit.OutboxConfig{Topic: topic, Published: publishedIDs(ids), PerClaim: 1})
	found.EventsLost = r.Lost
	return err
}

// publishedIDs is a topic whose IDs are known.
type publishedIDs []string

// Read implements audit.Topic.
func (ids publishedIDs) Read(context.Context, time.Time, time.Time) (txaudit.Source, error) {
	return &idSource{ids}, nil
}

// Kept implements audit.Topic: nothing was deleted.
func (ids publishedIDs) Kept(context.Context) (time.Time, error) { return time.Time{}, nil }

type idSource struct{ rest []string }

// Next implements txaudit.Source.
func (s *idSource) Next(context.Context) (msgs []*consumer.Message, err error) {
	for ; len(s.rest) > 0 && len(msgs) < 1000; s.rest = s.rest[1:] {
		msgs = append(msgs, &consumer.Message{Headers: map[string]string{outbox.HeaderID: s.rest[0]}})
	}
	return msgs, nil
}
