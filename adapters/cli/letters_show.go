package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
)

// letter returns the letter with the id in text.
func (a *app) letter(ctx context.Context, db *Database, text string) (consumer.DeadLetter, error) {
	id, err := consumer.ParseDeadLetterID(text)
	if err != nil {
		return consumer.DeadLetter{}, Usage(err)
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
		return out.object(show{v1(), letterJSON(out, l, payload)}, func() { printLetter(out, l, payload) })
	})
	c.Flags().BoolVar(&payload, "payload", false, "with the payload")
	return c
}

type letterObject struct {
	ID          string              `json:"id"`
	Consumer    string              `json:"consumer"`
	Tenant      string              `json:"tenant,omitempty"`
	Key         string              `json:"key"`
	Cause       string              `json:"cause"`
	Error       string              `json:"error"`
	Topic       string              `json:"topic"`
	OrderingKey string              `json:"ordering_key,omitempty"`
	Position    string              `json:"position"`
	Time        *time.Time          `json:"time"` // of the message
	Fingerprint string              `json:"fingerprint,omitempty"`
	Attempts    int                 `json:"attempts"`
	Times       int                 `json:"times"` // how often it was parked
	First       *time.Time          `json:"first_parked"`
	Latest      *time.Time          `json:"last_parked"`
	Settled     bool                `json:"settled"` // processed since
	Bytes       int                 `json:"payload_bytes"`
	Shortened   *consumer.Shortened `json:"shortened,omitempty"` // absent: the letter has its whole message
	Payload     []byte              `json:"payload,omitempty"`   // base64; only with --payload
	Headers     map[string]string   `json:"headers,omitempty"`   // only with --payload
}

func letterJSON(out *printer, l consumer.DeadLetter, payload bool) letterObject {
	o := letterObject{
		ID: l.ID.String(), Consumer: l.Record.Key.Consumer, Tenant: l.Record.Key.Tenant, Key: out.key(l.Record.Key.ID),
		Cause: string(l.Cause), Error: l.Error,
		Topic: l.Message.Topic, OrderingKey: out.key(l.Message.OrderingKey), Position: out.position(&l),
		Time:        jsonTime(l.Record.Time),
		Fingerprint: fingerprintText(l.Record.Fingerprint), Attempts: l.Message.Attempt, Times: l.Times,
		First: jsonTime(l.First), Latest: jsonTime(l.Latest), Settled: l.Settled, Bytes: len(l.Message.Payload),
	}
	if s, ok := l.Shortened(); ok {
		o.Shortened = &s
	}
	if payload {
		o.Payload, o.Headers = l.Message.Payload, l.Message.Headers
	}
	return o
}

func printLetter(out *printer, l consumer.DeadLetter, payload bool) {
	out.field("id", "%s", l.ID)
	out.field("consumer", "%s", l.Record.Key.Consumer)
	out.field("key", "%s", orNone(keyText(out, l.Record.Key)))
	out.field("cause", "%s", l.Cause)
	for i, text := range strings.Split(strings.TrimSpace(l.Error), "\n") { // a panic has a stack
		out.field(map[bool]string{true: "error"}[i == 0], "%s", strings.ReplaceAll(text, "\t", "    "))
	}
	out.field("topic", "%s", l.Message.Topic)
	out.field("position", "%s", out.position(&l))
	if l.Message.OrderingKey != "" {
		out.field("ordering key", "%s", out.key(l.Message.OrderingKey))
	}
	if !l.Record.Time.IsZero() {
		out.field("time", "%s", instant(l.Record.Time))
	}
	if f := fingerprintText(l.Record.Fingerprint); f != "" {
		out.field("fingerprint", "%s", f)
	}
	out.field("attempts", "%d", l.Message.Attempt)
	out.field("parked", "%s, first %s, latest %s", count(l.Times, "time"), instant(l.First), instant(l.Latest))
	if l.Settled {
		out.field("state", "processed since: nothing is left to do")
	} else {
		out.field("state", "open")
	}
	out.field("payload", "%d bytes", len(l.Message.Payload))
	if s, ok := l.Shortened(); ok {
		out.field("shortened", "%v", s)
	}
	if payload {
		out.printf("\n%s", contentText(l.Message.Headers, l.Message.Payload))
	}
}

// contentText returns headers and payload, with one field of JSON in a line.
func contentText(headers map[string]string, payload []byte) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		fmt.Fprintf(&b, "%s: %s\n", Harmless(name), Harmless(headers[name]))
	}
	if len(headers) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s\n", payloadText(payload))
	return b.String()
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func payloadText(payload []byte) string {
	var indented bytes.Buffer
	if json.Valid(payload) && json.Indent(&indented, payload, "", "  ") == nil {
		payload = indented.Bytes()
	}
	if !utf8.Valid(payload) {
		return fmt.Sprintf("%x", payload)
	}
	lines := strings.Split(string(payload), "\n")
	for i := range lines {
		lines[i] = strings.Repeat(" ", len(lines[i])-len(strings.TrimLeft(lines[i], " "))) + Harmless(lines[i])
	}
	return strings.Join(lines, "\n")
}
