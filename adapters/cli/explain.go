package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

func (a *app) explain() *cobra.Command {
	var tenant, at, fingerprint string
	c := a.command("explain CONSUMER KEY", "Show what has happened to one message, and what a redelivery would get", cobra.ExactArgs(2),
		func(ctx context.Context, db *Database, out *printer, args []string) error {
			key := dedup.Key{Consumer: args[0], Tenant: tenant, ID: args[1]}
			if err := key.Validate(); err != nil {
				return usage(err)
			}
			var opts ops.ExplainOptions
			var err error
			if opts.Time, err = parseTime("--time", at, time.Time{}); err != nil {
				return err
			}
			if fingerprint != "" {
				if n, err := hex.Decode(opts.Fingerprint[:], []byte(fingerprint)); err != nil || n != len(opts.Fingerprint) {
					return usage(fmt.Errorf("--fingerprint %q: want 16 hexadecimal digits", fingerprint))
				}
			}
			ctx, cancel := a.limit(ctx)
			defer cancel()
			e, err := ops.Explain(ctx, db.Store.Operator(), key, opts)
			if err != nil {
				return err
			}
			return out.object(explainJSON(out, e), func() { printExplanation(out, e) })
		})
	c.Flags().StringVar(&tenant, "tenant", "", "the tenant of the key")
	c.Flags().StringVar(&at, "time", "", "when the message was created; without it the verdict is never unprovable")
	c.Flags().StringVar(&fingerprint, "fingerprint", "", "the fingerprint of its content; without it the verdict is never mismatch")
	return c
}

type explainObject struct {
	version
	Consumer string         `json:"consumer"`
	Tenant   string         `json:"tenant,omitempty"`
	Key      string         `json:"key"`
	Verdict  ops.Verdict    `json:"verdict"`
	Claim    *claimObject   `json:"claim"`
	Holder   *holderObject  `json:"holder,omitempty"`
	Letters  []letterObject `json:"letters"`
}

type claimObject struct {
	Claimed     *time.Time `json:"claimed"` // about; null: unknown
	Expires     *time.Time `json:"expires"`
	Fingerprint string     `json:"fingerprint,omitempty"`
}

type holderObject struct {
	PID        int64     `json:"pid"`
	Since      time.Time `json:"since"`
	AgeSeconds float64   `json:"age_seconds"`
	State      string    `json:"state,omitempty"`
	Client     string    `json:"client,omitempty"`
}

func explainJSON(out *printer, e ops.Explanation) explainObject {
	o := explainObject{
		version: v1(), Consumer: e.Key.Consumer, Tenant: e.Key.Tenant, Key: out.key(e.Key.ID), Verdict: e.Verdict,
		Letters: []letterObject{},
	}
	if !e.Claim.ExpiresAt.IsZero() {
		o.Claim = &claimObject{jsonTime(e.Claimed), jsonTime(e.Claim.ExpiresAt), fingerprintText(e.Claim.Fingerprint)}
	}
	if h := e.Holder; h != nil {
		o.Holder = &holderObject{h.PID, h.Since.UTC(), h.Age.Seconds(), h.State, h.Client}
	}
	for _, l := range e.Letters {
		o.Letters = append(o.Letters, letterJSON(out, l, false))
	}
	return o
}

func fingerprintText(f dedup.Fingerprint) string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}

func printExplanation(out *printer, e ops.Explanation) {
	if e.Claim.ExpiresAt.IsZero() {
		out.printf("claim    none\n")
	} else {
		claimed := ""
		if !e.Claimed.IsZero() {
			claimed = " about " + instant(e.Claimed)
		}
		out.printf("claim    committed%s, expires %s", claimed, instant(e.Claim.ExpiresAt))
		if f := fingerprintText(e.Claim.Fingerprint); f != "" {
			out.printf(", fingerprint %s", f)
		}
		out.printf("\n")
	}
	if h := e.Holder; h != nil {
		out.printf("holder   pid %d, for %s, %s %s\n", h.PID, ago(h.Age), oneLine(h.State), oneLine(h.Client))
	}
	if len(e.Letters) == 0 {
		out.printf("letters  none\n")
	}
	for i, l := range e.Letters {
		head := "letters"
		if i > 0 {
			head = ""
		}
		out.printf("%-8s %s: %s, parked %s, %s", head, l.ID, l.Reason, instant(l.First), oneLine(out.position(&l)))
		if f := fingerprintText(l.Record.Fingerprint); f != "" {
			out.printf(", fingerprint %s", f)
		}
		if l.Settled {
			out.printf(", processed since")
		}
		out.printf("\n")
	}
	out.printf("verdict  %s\n", verdictText(e))
}

func verdictText(e ops.Explanation) string {
	switch e.Verdict {
	case ops.First:
		if len(e.Letters) > 0 {
			return "first: it was never processed; replay the letter, or wait for a redelivery"
		}
		return "first: it was never processed; a redelivery would run"
	case ops.Duplicate:
		for _, l := range e.Letters {
			if !l.Settled {
				return "duplicate: a redelivery would not run; a letter has other content, or an outcome that is unknown: dead-letters show"
			}
		}
		return "duplicate: it was processed; a redelivery would not run"
	case ops.Mismatch:
		return "mismatch: the key was processed with other content; a redelivery would be parked"
	case ops.InFlight:
		return "in flight: a transaction is processing it now; ask again when it has ended"
	default:
		return "unprovable: its claim may have been forgotten; a redelivery would be parked"
	}
}
