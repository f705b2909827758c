package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
)

func (a *app) outbox() *cobra.Command {
	return group("outbox", "List, show, unpark and discard parked messages of the outbox, and answer calls in doubt", a.listParked(),
		a.showParked(),
		a.changeParked("unpark", "Make parked messages pending again", ops.Unpark),
		a.changeParked("discard", "Delete parked messages, which are never published then", ops.DiscardOutbox),
		a.answerCall())
}

// parkedFlags are the conditions on parked messages.
type parkedFlags struct {
	both  filterFlags
	after int64
}

func (f *parkedFlags) filter() (filter outbox.ParkedFilter, err error) {
	filter = outbox.ParkedFilter{
		Topic: f.both.topic, OrderingKey: f.both.key, Error: f.both.text, After: f.after,
		Limit: f.both.limit,
	}
	filter.Since, filter.Until, err = f.both.check()
	return filter, err
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
	Call     string            `json:"call,omitempty"` // of a call to another system: in doubt, happened
	Waiting  bool              `json:"waiting"`        // for the message that it is behind
	Behind   int64             `json:"behind,omitempty"`
	Bytes    int               `json:"payload_bytes"`
	Payload  []byte            `json:"payload,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
}

func parkedJSON(out *printer, m outbox.ParkedMessage, payload bool) parkedObject {
	o := parkedObject{
		Seq: m.Seq, ID: out.key(m.ID), Topic: m.Topic, Key: out.key(m.OrderingKey), Error: m.Error,
		Call: string(m.Call()), Attempts: m.Attempts, Enqueued: jsonTime(m.Enqueued), Parked: jsonTime(m.ParkedAt),
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
			filter.Limit = pageSize
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
				out.printf("no parked messages match\n")
				return
			}
			rows := [][]string{{"SEQ", "PARKED", "TOPIC", "KEY", "ID", "ATTEMPTS", "STATE", "ERROR"}}
			for _, m := range found {
				rows = append(rows, []string{
					fmt.Sprint(m.Seq), instant(m.ParkedAt), m.Topic, out.key(m.OrderingKey), out.key(m.ID),
					fmt.Sprint(m.Attempts), parkedState(m), shorten(m.Error, 60),
				})
			}
			out.table(rows)
			adviseOnCalls(out, found)
			if l.After > 0 {
				out.printf("more with --after %d\n", l.After)
			}
		})
	})
	f.both.add(c, "topic", "ordering key")
	c.Flags().IntVar(&f.both.limit, "limit", pageSize, "how many to list at most")
	c.Flags().Int64Var(&f.after, "after", 0, "the next page: the value at the end of the page before")
	return c
}

func parkedState(m outbox.ParkedMessage) string {
	switch {
	case m.Waiting:
		return fmt.Sprintf("waits behind %d", m.Behind)
	case m.Behind != 0:
		return fmt.Sprintf("parked behind %d", m.Behind)
	}
	switch m.Call() {
	case outbox.CallInDoubt:
		return "in doubt"
	case outbox.CallHappened:
		return "call happened"
	default:
		return "parked"
	}
}

func (a *app) showParked() *cobra.Command {
	var payload bool
	c := a.command("show SEQ", "Show one parked message", cobra.ExactArgs(1), func(ctx context.Context, db *Database, out *printer, args []string) error {
		seqs, err := parseSeqs(args)
		if err != nil {
			return err
		}
		m, ok, err := a.parked(ctx, db, seqs[0])
		if err != nil {
			return err
		}
		if !ok {
			return refused("there is no parked message %d: it was unparked or discarded, or never existed", seqs[0])
		}
		type show struct {
			version
			parkedObject
		}
		return out.object(show{v1(), parkedJSON(out, m, payload)}, func() {
			out.field("seq", "%d", m.Seq)
			out.field("id", "%s", out.key(m.ID))
			out.field("topic", "%s", m.Topic)
			out.field("key", "%s", orNone(out.key(m.OrderingKey)))
			out.field("state", "%s", parkedState(m))
			out.field("error", "%s", m.Error)
			out.field("attempts", "%d", m.Attempts)
			out.field("enqueued", "%s", instant(m.Enqueued))
			out.field("parked", "%s", instant(m.ParkedAt))
			out.field("payload", "%d bytes", len(m.Payload))
			adviseOnCalls(out, []outbox.ParkedMessage{m})
			if payload {
				out.printf("\n%s", contentText(m.Headers, m.Payload))
			}
		})
	})
	c.Flags().BoolVar(&payload, "payload", false, "with headers and payload")
	return c
}

// parked returns one parked message. ok is false if there is none with this number.
func (a *app) parked(ctx context.Context, db *Database, seq int64) (m outbox.ParkedMessage, ok bool, err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	found, err := db.Store.Operator().Outbox().Parked(ctx, outbox.ParkedFilter{After: seq - 1, Limit: 1})
	if err != nil || len(found) == 0 || found[0].Seq != seq {
		return m, false, err
	}
	return found[0], true, nil
}

func numbers(seqs []int64) string {
	texts := make([]string, len(seqs))
	for i, seq := range seqs {
		texts[i] = strconv.FormatInt(seq, 10)
	}
	return strings.Join(texts, ", ")
}

func parseSeqs(args []string) (seqs []int64, err error) {
	for _, arg := range args {
		seq, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || seq <= 0 {
			return nil, Usage(fmt.Errorf("%q is not the SEQ of a message: want a number from outbox list", arg))
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}
