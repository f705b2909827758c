package cli

import (
	"context"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
)

func (a *app) diffLetters() *cobra.Command {
	return a.command("diff ID [ID]", "Compare headers and payload of a dead letter with the other letters of its key, or with another letter", cobra.RangeArgs(1, 2),
		func(ctx context.Context, db *Database, out *printer, args []string) error {
			l, err := a.letter(ctx, db, args[0])
			if err != nil {
				return err
			}
			var others []consumer.DeadLetter
			if len(args) == 2 {
				other, err := a.letter(ctx, db, args[1])
				if err != nil {
					return err
				}
				others = append(others, other)
			} else {
				limited, cancel := a.limit(ctx)
				defer cancel()
				e, err := ops.Explain(limited, db.Store.Operator(), l.Record.Key,
					ops.ExplainOptions{Fingerprint: l.Record.Fingerprint})
				if err != nil {
					return err
				}
				for _, other := range e.Letters {
					if other.ID != l.ID {
						others = append(others, other)
					}
				}
				if len(others) == 0 {
					return refused("there is no other letter with the key of %s; the fingerprint of its claim is %s, and that of the letter is %s",
						l.ID, orNone(fingerprintText(e.Claim.Fingerprint)),
						orNone(fingerprintText(l.Record.Fingerprint)))
				}
			}
			type pair struct {
				From string `json:"from"`
				To   string `json:"to"`
				Diff string `json:"diff"` // unified; empty: equal
			}
			type diffs struct {
				version
				Diffs []pair `json:"diffs"`
			}
			d := diffs{version: v1()}
			for _, other := range others {
				text := diff.Diff(other.ID.String(), []byte(contentText(other.Message.Headers, other.Message.Payload)),
					l.ID.String(), []byte(contentText(l.Message.Headers, l.Message.Payload)))
				d.Diffs = append(d.Diffs, pair{other.ID.String(), l.ID.String(), string(text)})
			}
			return out.object(d, func() {
				for _, p := range d.Diffs {
					if p.Diff == "" {
						out.printf("%s and %s are equal\n", p.From, p.To)
					}
					out.printf("%s", p.Diff)
				}
			})
		})
}
