package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// Verdict says what a delivery of a message would get now.
type Verdict string

// The verdicts.
const (
	VerdictFirst      Verdict = "first"      // it was never processed: it would run
	VerdictDuplicate  Verdict = "duplicate"  // it was processed: it would not run again
	VerdictMismatch   Verdict = "mismatch"   // its key was processed with other content: it would be parked
	VerdictUnprovable Verdict = "unprovable" // its claim may have been forgotten: it would be parked
	VerdictInFlight   Verdict = "in_flight"  // a transaction is processing it now
)

// ExplainOptions describe the delivery that Explain is about.
type ExplainOptions struct {
	Time        time.Time         // of the message; zero: unknown, and the verdict is never VerdictUnprovable
	Fingerprint dedup.Fingerprint // of its content; zero: unknown, and the verdict is never VerdictMismatch
}

// Explanation is what the database knows about one key.
type Explanation struct {
	Key     dedup.Key
	Verdict Verdict
	Claim   dedup.Claim           // the row of the key; its ExpiresAt is zero if there is none
	Claimed time.Time             // about when it was claimed, or the message's own time if that is later; zero: unknown
	Holder  *Holder               // of VerdictInFlight; nil: the database does not tell
	Horizon time.Time             // of the consumer, see ConsumerStatus
	Letters []consumer.DeadLetter // with this key, newest first, at most 100
}

// Explain finds out what has happened to a key, and what a delivery of its message would get. It claims the key and rolls back, which is
// the only proof, and waits for about a second if another transaction holds the key. It leaves nothing in the database.
func Explain(ctx context.Context, s Store, key dedup.Key, opts ExplainOptions) (Explanation, error) {
	e := Explanation{Key: key}
	probe, err := s.Probe(ctx, dedup.Record{Key: key, Time: opts.Time, Fingerprint: opts.Fingerprint})
	if err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	e.Claim, e.Holder = probe.Claim, probe.Holder
	e.Verdict = verdict(probe)
	status, err := s.Status(ctx)
	if err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	for _, c := range status.Consumers {
		if c.Name != key.Consumer {
			continue
		}
		e.Horizon = c.Horizon
		if len(c.Windows) == 1 && !e.Claim.ExpiresAt.IsZero() {
			e.Claimed = e.Claim.ExpiresAt.Add(-c.Windows[0].Window)
		}
	}
	letters, err := s.DeadLetters(ctx, consumer.DeadLetterFilter{Consumer: key.Consumer, MessageID: key.ID, Tenant: key.Tenant})
	if err != nil {
		return e, fmt.Errorf("ops: explain %v: %w", key, err)
	}
	for _, l := range letters {
		if l.Record.Key == key { // a filter without tenant chooses all tenants
			e.Letters = append(e.Letters, l)
		}
	}
	return e, nil
}

func verdict(p Probe) Verdict {
	if p.InFlight {
		return VerdictInFlight
	}
	switch p.Claim.Verdict {
	case dedup.First:
		return VerdictFirst
	case dedup.Duplicate:
		return VerdictDuplicate
	case dedup.Mismatch:
		return VerdictMismatch
	default:
		return VerdictUnprovable
	}
}
