package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func (a *app) letters() *cobra.Command {
	c := group("dead-letters", "List, show, discard and replay dead letters", a.listLetters(), a.showLetter(), a.diffLetters(), a.discardLetters(), a.replayLetters())
	c.Aliases = []string{"letters"}
	return c
}

// letterFlags are the conditions on dead letters.
type letterFlags struct {
	id, consumer, cause, topic, key, tenant, text, since, until, after string
	limit                                                              int
}

func (f *letterFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.id, "id", "", "only the letter with this id")
	flags.StringVar(&f.consumer, "consumer", "", "only those of this consumer")
	flags.StringVar(&f.cause, "cause", "", "only those parked for this cause: "+strings.Join(causes(), ", "))
	flags.StringVar(&f.topic, "topic", "", "only those of this topic or queue")
	flags.StringVar(&f.key, "key", "", "only those with this natural key")
	flags.StringVar(&f.tenant, "tenant", "", "only those of this tenant")
	flags.StringVar(&f.text, "error", "", "only those whose error contains this text")
	flags.StringVar(&f.since, "since", "", "parked at this time or later: RFC 3339, or 2h for two hours ago")
	flags.StringVar(&f.until, "until", "", "parked before this time")
	if err := c.RegisterFlagCompletionFunc("cause", cobra.FixedCompletions(causes(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
}

func causes() []string {
	names := []string{}
	for _, r := range consumer.Reasons() {
		names = append(names, string(r))
	}
	return names
}

func (f *letterFlags) filter() (filter consumer.DeadLetterFilter, err error) {
	filter = consumer.DeadLetterFilter{
		Consumer: f.consumer, Reason: observe.Cause(f.cause), Topic: f.topic, MessageID: f.key, Tenant: f.tenant, Cause: f.text, Limit: f.limit,
	}
	if f.id != "" {
		if filter.ID, err = consumer.ParseDeadLetterID(f.id); err != nil {
			return filter, usage(err)
		}
	}
	if f.cause != "" {
		known := false
		for _, r := range causes() {
			known = known || r == f.cause
		}
		if !known {
			return filter, usage(fmt.Errorf("--cause %q: want one of %s", f.cause, strings.Join(causes(), ", ")))
		}
	}
	now := time.Now()
	if filter.Since, err = parseTime("--since", f.since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = parseTime("--until", f.until, now); err != nil {
		return filter, err
	}
	if f.limit < 0 {
		return filter, usage(fmt.Errorf("--limit %d is negative", f.limit))
	}
	if f.after != "" {
		at, id, _ := strings.Cut(f.after, "/")
		filter.After.First, err = time.Parse(time.RFC3339Nano, at)
		if err == nil {
			filter.After.ID, err = consumer.ParseDeadLetterID(id)
		}
		if err != nil {
			return filter, usage(fmt.Errorf("--after %q: want the value that the page before has printed: %w", f.after, err))
		}
	}
	return filter, nil
}

// parseTime reads RFC 3339, or a duration before now; a zero now accepts no duration.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 && !now.IsZero() {
		return now.Add(-d), nil
	}
	return time.Time{}, usage(fmt.Errorf("%s %q: want a time such as 2026-11-24T10:07:00Z, or a duration such as 2h", flag, text))
}

func cursor(l consumer.DeadLetter) string {
	return l.First.UTC().Format(time.RFC3339Nano) + "/" + l.ID.String()
}

func (a *app) listLetters() *cobra.Command {
	var f letterFlags
	var payload bool
	c := a.command("list", "List dead letters, newest first", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		ctx, cancel := a.limit(ctx)
		defer cancel()
		if filter.Limit == 0 {
			filter.Limit = 100
		}
		found, err := db.Store.Operator().DeadLetters(ctx, filter)
		if err != nil {
			return err
		}
		type list struct {
			version
			Letters []letterObject `json:"letters"`
			After   string         `json:"after,omitempty"` // for the next page
		}
		l := list{version: v1(), Letters: []letterObject{}}
		for _, letter := range found {
			l.Letters = append(l.Letters, letterJSON(out, letter, payload))
		}
		if len(found) == filter.Limit {
			l.After = cursor(found[len(found)-1])
		}
		return out.object(l, func() {
			if len(found) == 0 {
				out.printf("no dead letters\n")
				return
			}
			rows := [][]string{{"ID", "PARKED", "CONSUMER", "KEY", "CAUSE", "TIMES", "POSITION", "ERROR"}}
			for _, l := range found {
				cause := string(l.Reason)
				if l.Settled {
					cause += " (processed since)"
				}
				rows = append(rows, []string{
					l.ID.String(), instant(l.First), l.Record.Key.Consumer, keyText(out, l.Record.Key), cause, fmt.Sprint(l.Times), out.position(&l), shorten(l.Cause, 60),
				})
			}
			out.table(rows)
			if payload {
				for _, l := range found {
					out.printf("\n%s\n%s\n", l.ID, payloadText(l.Message.Payload))
				}
			}
			if l.After != "" {
				out.printf("more with --after %s\n", l.After)
			}
		})
	})
	f.add(c)
	c.Flags().IntVar(&f.limit, "limit", 100, "at most so many")
	c.Flags().StringVar(&f.after, "after", "", "the next page: the value that the page before has printed")
	c.Flags().BoolVar(&payload, "payload", false, "with the payloads")
	return c
}

// keyText returns a key with its tenant.
func keyText(out *printer, k dedup.Key) string {
	if k.Tenant != "" {
		return k.Tenant + "/" + out.key(k.ID)
	}
	return out.key(k.ID)
}

// letter returns the letter with the id in text.
func (a *app) letter(ctx context.Context, db *Database, text string) (consumer.DeadLetter, error) {
	id, err := consumer.ParseDeadLetterID(text)
	if err != nil {
		return consumer.DeadLetter{}, usage(err)
	}
	ctx, cancel := a.limit(ctx)
	defer cancel()
	found, err := db.Store.Operator().DeadLetters(ctx, consumer.DeadLetterFilter{ID: id})
	if err == nil && len(found) == 0 {
		err = refused("there is no dead letter %s: it was replayed or discarded, or never existed", id)
	}
	if err != nil {
		return consumer.DeadLetter{}, err
	}
	return found[0], nil
}

func (a *app) showLetter() *cobra.Command {
	var payload bool
	c := a.command("show ID", "Show one dead letter", cobra.ExactArgs(1), func(ctx context.Context, db *Database, out *printer, args []string) error {
		l, err := a.letter(ctx, db, args[0])
		if err != nil {
			return err
		}
		type show struct {
			version
			letterObject
		}
		return out.object(show{v1(), letterJSON(out, l, payload)}, func() { out.printf("%s", letterText(out, l, payload)) })
	})
	c.Flags().BoolVar(&payload, "payload", false, "with the payload")
	return c
}

func (a *app) diffLetters() *cobra.Command {
	return a.command("diff ID [ID]", "Compare a dead letter with the other letters of its key, or with another letter", cobra.RangeArgs(1, 2),
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
				e, err := ops.Explain(limited, db.Store.Operator(), l.Record.Key, ops.ExplainOptions{Fingerprint: l.Record.Fingerprint})
				if err != nil {
					return err
				}
				for _, other := range e.Letters {
					if other.ID != l.ID {
						others = append(others, other)
					}
				}
				if len(others) == 0 {
					return refused("there is no other letter with the key of %s; its claim keeps only a fingerprint: %s, and the letter has %s",
						l.ID, orNone(fingerprintText(e.Claim.Fingerprint)), orNone(fingerprintText(l.Record.Fingerprint)))
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
				text := diff.Diff(other.ID.String(), []byte(contentText(out, other)), l.ID.String(), []byte(contentText(out, l)))
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

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
