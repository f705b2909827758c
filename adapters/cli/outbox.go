package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
)

func (a *app) outbox() *cobra.Command {
	return group("outbox", "List, show, unpark and discard parked messages of the outbox", a.listParked(), a.showParked(),
		a.changeParked("unpark", "Make parked messages pending again", "published", "unparked", ops.UnparkMessages, outbox.Operations.Unpark, ops.Unpark),
		a.changeParked("discard", "Delete parked messages, which are never published then", "deleted", "discarded", ops.DiscardMessages, outbox.Operations.Discard, ops.DiscardOutbox))
}

type parkedFlags struct {
	topic, key, text, since, until string
	limit                          int
	after                          int64
}

func (f *parkedFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.topic, "topic", "", "only those of this topic")
	flags.StringVar(&f.key, "key", "", "only those with this ordering key")
	flags.StringVar(&f.text, "error", "", "only those whose error contains this text")
	flags.StringVar(&f.since, "since", "", "parked at this time or later: RFC 3339, or 2h for two hours ago")
	flags.StringVar(&f.until, "until", "", "parked before this time")
}

func (f *parkedFlags) filter() (filter outbox.ParkedFilter, err error) {
	filter = outbox.ParkedFilter{Topic: f.topic, Key: f.key, Cause: f.text, After: f.after, Limit: f.limit}
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
	return filter, nil
}

type parkedObject struct {
	Seq      int64             `json:"seq"`
	ID       string            `json:"id"`
	Topic    string            `json:"topic"`
	Key      string            `json:"key,omitempty"`
	Error    string            `json:"error"`
	Attempts int               `json:"attempts"`
	Enqueued *time.Time        `json:"enqueued"`
	Parked   *time.Time        `json:"parked"`
	Waiting  bool              `json:"waiting"` // for the message that it is behind
	Behind   int64             `json:"behind,omitempty"`
	Bytes    int               `json:"payload_bytes"`
	Payload  []byte            `json:"payload,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
}

func parkedJSON(out *printer, m outbox.ParkedMessage, payload bool) parkedObject {
	o := parkedObject{
		Seq: m.Seq, ID: m.ID, Topic: m.Topic, Key: out.key(m.Key), Error: m.Cause, Attempts: m.Attempts, Enqueued: jsonTime(m.Enqueued), Parked: jsonTime(m.ParkedAt),
		Waiting: m.Waiting, Behind: m.Behind, Bytes: len(m.Payload),
	}
	if payload {
		o.Payload, o.Headers = m.Payload, m.Headers
	}
	return o
}

func (a *app) listParked() *cobra.Command {
	var f parkedFlags
	c := a.command("list", "List parked messages, and those that wait behind them", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		ctx, cancel := a.limit(ctx)
		defer cancel()
		if filter.Limit == 0 {
			filter.Limit = 100
		}
		found, err := db.Store.Operator().Outbox().Parked(ctx, filter)
		if err != nil {
			return err
		}
		type list struct {
			version
			Messages []parkedObject `json:"messages"`
			After    int64          `json:"after,omitempty"` // for the next page
		}
		l := list{version: v1(), Messages: []parkedObject{}}
		for _, m := range found {
			l.Messages = append(l.Messages, parkedJSON(out, m, false))
		}
		if len(found) == filter.Limit {
			l.After = found[len(found)-1].Seq
		}
		return out.object(l, func() {
			if len(found) == 0 {
				out.printf("no parked messages\n")
				return
			}
			rows := [][]string{{"SEQ", "PARKED", "TOPIC", "KEY", "ID", "ATTEMPTS", "STATE", "ERROR"}}
			for _, m := range found {
				rows = append(rows, []string{
					fmt.Sprint(m.Seq), instant(m.ParkedAt), m.Topic, out.key(m.Key), m.ID, fmt.Sprint(m.Attempts), parkedState(m), shorten(m.Cause, 60),
				})
			}
			out.table(rows)
			if l.After > 0 {
				out.printf("more with --after %d\n", l.After)
			}
		})
	})
	f.add(c)
	c.Flags().IntVar(&f.limit, "limit", 100, "at most so many")
	c.Flags().Int64Var(&f.after, "after", 0, "the next page: the value that the page before has printed")
	return c
}

func parkedState(m outbox.ParkedMessage) string {
	switch {
	case m.Waiting:
		return fmt.Sprintf("waits behind %d", m.Behind)
	case m.Behind != 0:
		return fmt.Sprintf("parked behind %d", m.Behind)
	}
	return "parked"
}

func (a *app) showParked() *cobra.Command {
	var payload bool
	c := a.command("show SEQ", "Show one parked message", cobra.ExactArgs(1), func(ctx context.Context, db *Database, out *printer, args []string) error {
		seqs, err := parseSeqs(args)
		if err != nil {
			return err
		}
		ctx, cancel := a.limit(ctx)
		defer cancel()
		found, err := db.Store.Operator().Outbox().Parked(ctx, outbox.ParkedFilter{After: seqs[0] - 1, Limit: 1})
		if err != nil {
			return err
		}
		if len(found) == 0 || found[0].Seq != seqs[0] {
			return refused("there is no parked message %d: it was unparked or discarded, or never existed", seqs[0])
		}
		m := found[0]
		type show struct {
			version
			parkedObject
		}
		return out.object(show{v1(), parkedJSON(out, m, payload)}, func() {
			line := func(name, format string, args ...any) {
				out.printf("%-9s %s\n", name, oneLine(fmt.Sprintf(format, args...)))
			}
			line("seq", "%d", m.Seq)
			line("id", "%s", m.ID)
			line("topic", "%s", m.Topic)
			line("key", "%s", orNone(out.key(m.Key)))
			line("state", "%s", parkedState(m))
			line("error", "%s", m.Cause)
			line("attempts", "%d", m.Attempts)
			line("enqueued", "%s", instant(m.Enqueued))
			line("parked", "%s", instant(m.ParkedAt))
			line("payload", "%d bytes", len(m.Payload))
			if payload {
				out.printf("\n%s\n", payloadText(m.Payload))
			}
		})
	})
	c.Flags().BoolVar(&payload, "payload", false, "with the payload")
	return c
}

func parseSeqs(args []string) (seqs []int64, err error) {
	for _, arg := range args {
		seq, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || seq <= 0 {
			return nil, usage(fmt.Errorf("%q is not the SEQ of a message: want a number from outbox list", arg))
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

type (
	changeByFilter func(ctx context.Context, s ops.Store, filter outbox.ParkedFilter, who, reason string) (ops.Action, int, error)
	changeBySeq    func(of outbox.Operations, ctx context.Context, seqs ...int64) (int, error)
)

func (a *app) changeParked(name, short, become, done string, byFilter changeByFilter, bySeq changeBySeq, kind ops.Kind) *cobra.Command {
	var f parkedFlags
	var act actFlags
	c := a.command(name+" [SEQ...]", short, cobra.ArbitraryArgs, func(ctx context.Context, db *Database, out *printer, args []string) error {
		filter, err := f.filter()
		if err != nil {
			return err
		}
		seqs, err := parseSeqs(args)
		if err != nil {
			return err
		}
		bare := filter == outbox.ParkedFilter{Limit: filter.Limit}
		switch {
		case len(seqs) == 0 && bare:
			return usage(fmt.Errorf("name the messages by SEQ, or choose them with --topic, --key, --error, --since or --until"))
		case len(seqs) > 0 && (!bare || filter.Limit > 0):
			return usage(fmt.Errorf("name the messages by SEQ or by conditions, not both"))
		}
		if err := act.check(); err != nil {
			return err
		}
		s := db.Store.Operator()
		matching := len(seqs)
		if matching == 0 {
			if matching, err = a.countParked(ctx, s.Outbox(), filter); err != nil {
				return err
			}
		}
		type result struct {
			version
			DryRun  bool   `json:"dry_run"`
			Match   int    `json:"match"`
			Changed int    `json:"changed"`
			Action  string `json:"action,omitempty"`
		}
		if act.dry {
			return out.object(result{version: v1(), DryRun: true, Match: matching}, func() { out.printf("%d match\n", matching) })
		}
		if act.expect >= 0 && matching != act.expect {
			return fmt.Errorf("%w: %d match, %d are expected", ops.ErrExpected, matching, act.expect)
		}
		if !act.yes {
			out.notef("%s would be %s.\n", count(matching, "message"), become)
			word := fmt.Sprint(matching)
			if err := out.confirm(fmt.Sprintf("Type their number, %s, to go on: ", word), word, false); err != nil {
				return err
			}
		}
		var action ops.Action
		var n int
		if len(seqs) > 0 {
			limited, cancel := a.limit(ctx)
			defer cancel()
			action, err = s.Request(limited, ops.Request{Kind: kind, Who: act.who, Reason: act.reason, Note: fmt.Sprintf("messages %d", seqs), Expect: -1})
			if err == nil {
				n, err = bySeq(s.Outbox(), limited, seqs...)
			}
		} else {
			action, n, err = byFilter(ctx, s, filter, act.who, act.reason)
		}
		if err != nil {
			return fmt.Errorf("%s %s; the same command does the rest: %w", counted(n, "message"), done, err)
		}
		return out.object(result{version: v1(), Match: matching, Changed: n, Action: action.ID.String()}, func() {
			out.printf("%s %s (action %s)\n", counted(n, "message"), done, action.ID)
		})
	})
	f.add(c)
	act.add(c)
	c.Flags().IntVar(&f.limit, "limit", 0, "at most so many, the oldest first; 0: all")
	return c
}

func (a *app) countParked(ctx context.Context, of outbox.Operations, filter outbox.ParkedFilter) (n int, err error) {
	limit := filter.Limit
	for {
		filter.Limit = 100
		if limit > 0 {
			filter.Limit = min(100, limit-n)
		}
		limited, cancel := a.limit(ctx)
		page, err := of.Parked(limited, filter)
		cancel()
		if err != nil {
			return n, err
		}
		n += len(page)
		if len(page) < filter.Limit || n == limit {
			return n, nil
		}
		filter.After = page[len(page)-1].Seq
	}
}
