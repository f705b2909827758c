package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

func (a *app) letters() *cobra.Command {
	c := group("dead-letters", "List, show, discard and replay dead letters", a.listLetters(), a.showLetter(),
		a.diffLetters(), a.discardLetters(), a.replayLetters())
	c.Aliases = []string{"letters"}
	return c
}

// letterFlags are the conditions on dead letters.
type letterFlags struct {
	id, consumer, cause, tenant, position, after string
	both                                         filterFlags
}

func (f *letterFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.id, "id", "", "only the letter with this id")
	flags.StringVar(&f.consumer, "consumer", "", "only those of this consumer")
	flags.StringVar(&f.cause, "cause", "", "only those parked for this cause: "+strings.Join(causes(), ", "))
	flags.StringVar(&f.tenant, "tenant", "", "only those of this tenant")
	flags.StringVar(&f.position, "position", "", "only those from this position, such as TOPIC/PARTITION/OFFSET of Kafka")
	f.both.add(c, "topic or queue", "business key")
	if err := c.RegisterFlagCompletionFunc("cause", cobra.FixedCompletions(causes(),
		cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
}

func causes() []string {
	names := []string{}
	for _, r := range ops.Causes() {
		names = append(names, string(r))
	}
	return names
}

func (f *letterFlags) filter() (filter consumer.DeadLetterFilter, err error) {
	filter = consumer.DeadLetterFilter{
		Consumer: f.consumer, Cause: observe.Cause(f.cause), Topic: f.both.topic, MessageID: f.both.key,
		Tenant: f.tenant, Position: f.position, Error: f.both.text, Limit: f.both.limit,
	}
	if f.id != "" {
		if filter.ID, err = consumer.ParseDeadLetterID(f.id); err != nil {
			return filter, Usage(err)
		}
	}
	if f.cause != "" && !slices.Contains(causes(), f.cause) {
		return filter, Usage(fmt.Errorf("--cause %q: want one of %s", f.cause, strings.Join(causes(), ", ")))
	}
	if filter.Since, filter.Until, err = f.both.check(); err != nil {
		return filter, err
	}
	if f.after != "" {
		at, id, _ := strings.Cut(f.after, "/")
		filter.After.First, err = time.Parse(time.RFC3339Nano, at)
		if err == nil {
			filter.After.ID, err = consumer.ParseDeadLetterID(id)
		}
		if err != nil {
			return filter, Usage(fmt.Errorf("--after %q: want the value that the page before has printed: %w",
				f.after, err))
		}
	}
	return filter, nil
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
		if err := a.hasRun(ctx, db, f.consumer); err != nil {
			return err
		}
		ctx, cancel := a.limit(ctx)
		defer cancel()
		if filter.Limit == 0 {
			filter.Limit = pageSize
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
				out.printf("no dead letters match\n")
				return
			}
			rows := [][]string{{"ID", "PARKED", "CONSUMER", "KEY", "CAUSE", "TIMES", "POSITION", "ERROR"}}
			for _, l := range found {
				cause := string(l.Cause)
				if l.Settled {
					cause += " (processed since)"
				}
				rows = append(rows, []string{
					l.ID.String(), instant(l.First), l.Record.Key.Consumer, keyText(out, l.Record.Key), cause,
					fmt.Sprint(l.Times), out.position(&l), shorten(l.Error, 60),
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
	c.Flags().IntVar(&f.both.limit, "limit", pageSize, "how many to list at most")
	c.Flags().StringVar(&f.after, "after", "", "the next page: the value at the end of the page before")
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
