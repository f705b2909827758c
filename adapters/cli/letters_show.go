package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txonce/txonce/consumer"
)

type letterObject struct {
	ID          string            `json:"id"`
	Consumer    string            `json:"consumer"`
	Tenant      string            `json:"tenant,omitempty"`
	Key         string            `json:"key"`
	Cause       string            `json:"cause"`
	Error       string            `json:"error"`
	Topic       string            `json:"topic"`
	OrderingKey string            `json:"ordering_key,omitempty"`
	Position    string            `json:"position"`
	Time        *time.Time        `json:"time"` // of the message
	Fingerprint string            `json:"fingerprint,omitempty"`
	Attempts    int               `json:"attempts"`
	Times       int               `json:"times"` // how often it was parked
	First       *time.Time        `json:"first_parked"`
	Latest      *time.Time        `json:"last_parked"`
	Settled     bool              `json:"settled"` // processed since
	Bytes       int               `json:"payload_bytes"`
	Payload     []byte            `json:"payload,omitempty"` // base64; only with --payload
	Headers     map[string]string `json:"headers,omitempty"` // only with --payload
}

func letterJSON(out *printer, l consumer.DeadLetter, payload bool) letterObject {
	o := letterObject{
		ID: l.ID.String(), Consumer: l.Record.Key.Consumer, Tenant: l.Record.Key.Tenant, Key: out.key(l.Record.Key.ID), Cause: string(l.Reason), Error: l.Cause,
		Topic: l.Message.Topic, OrderingKey: out.key(l.Message.Key), Position: out.position(&l), Time: jsonTime(l.Record.Time),
		Fingerprint: fingerprintText(l.Record.Fingerprint), Attempts: l.Message.Attempt, Times: l.Times,
		First: jsonTime(l.First), Latest: jsonTime(l.Latest), Settled: l.Settled, Bytes: len(l.Message.Payload),
	}
	if payload {
		o.Payload, o.Headers = l.Message.Payload, l.Message.Headers
	}
	return o
}

func letterText(out *printer, l consumer.DeadLetter, payload bool) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	line("id", "%s", l.ID)
	line("consumer", "%s", l.Record.Key.Consumer)
	line("key", "%s", orNone(keyText(out, l.Record.Key)))
	line("cause", "%s", l.Reason)
	for i, text := range strings.Split(strings.TrimSpace(l.Cause), "\n") { // a panic has a stack
		line(map[bool]string{true: "error"}[i == 0], "%s", strings.ReplaceAll(text, "\t", "    "))
	}
	line("topic", "%s", l.Message.Topic)
	line("position", "%s", out.position(&l))
	if l.Message.Key != "" {
		line("ordering key", "%s", out.key(l.Message.Key))
	}
	if !l.Record.Time.IsZero() {
		line("time", "%s", instant(l.Record.Time))
	}
	if f := fingerprintText(l.Record.Fingerprint); f != "" {
		line("fingerprint", "%s", f)
	}
	line("attempts", "%d", l.Message.Attempt)
	line("parked", "%d times, first %s, latest %s", l.Times, instant(l.First), instant(l.Latest))
	if l.Settled {
		line("state", "processed since: nothing is left to do")
	} else {
		line("state", "open")
	}
	line("payload", "%d bytes", len(l.Message.Payload))
	if payload {
		b.WriteString("\n" + contentText(out, l))
	}
	return b.String()
}

// contentText returns headers and payload, with one field of JSON in a line.
func contentText(out *printer, l consumer.DeadLetter) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l.Message.Headers)) {
		fmt.Fprintf(&b, "%s: %s\n", oneLine(name), oneLine(l.Message.Headers[name]))
	}
	fmt.Fprintf(&b, "\n%s\n", payloadText(l.Message.Payload))
	return b.String()
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
		lines[i] = strings.Repeat(" ", len(lines[i])-len(strings.TrimLeft(lines[i], " "))) + oneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}
