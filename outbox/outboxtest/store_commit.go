package outboxtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// commitCases are about the messages of committed and rolled back transactions.
func commitCases[TTx any]() []storeCase[TTx] {
	const both = "28: the message exists exactly if its transaction does"
	return []storeCase[TTx]{
		{name: "rollback publishes nothing", hazard: both, run: rollback[TTx]},
		{name: "what is not committed is not leased", hazard: both, needs: twoWriters, run: uncommitted[TTx]},
		{name: "commit makes a message leasable with every field intact", hazard: both, run: intact[TTx]},
		{name: "a payload of 1 MB arrives intact", hazard: both, run: large[TTx]},
		{name: "header names arrive intact or are refused", hazard: both, run: headerNames[TTx]},
		{name: "a bad message is refused, and nothing of its call is enqueued", hazard: both, run: badMessage[TTx]},
		{name: "Enqueue keeps nothing of its caller's", hazard: both, run: keepsNothing[TTx]},
		{name: "Enqueue of nothing does nothing", hazard: both, run: enqueueNothing[TTx]},
		{
			name: "5,000 messages in one call", hazard: "27: order within a key is the order of Enqueue",
			run: fiveThousand[TTx],
		},
		{name: "the time of Enqueue is the database's", hazard: both, run: enqueuedAt[TTx]},
	}
}

func rollback[TTx any](e *env[TTx]) {
	err := e.inTx(func(tx TTx) error {
		return errors.Join(e.Writer.Enqueue(e.ctx, tx, series("a", 3)...), errUndo)
	})
	if !errors.Is(err, errUndo) {
		e.Fatalf("the transaction's error: %v, want %v", err, errUndo)
	}
	s := e.session()
	s.quiet("it was rolled back")
	if st := e.stats(); st.Pending != 0 {
		e.Fatalf("%d messages are pending after a rollback", st.Pending)
	}
	e.enqueue(message("later", "a"))
	s.drain(1)
}

func uncommitted[TTx any](e *env[TTx]) {
	s := e.session()
	tx := e.begin()
	tx.enqueue(series("a", 3)...)
	s.quiet("it is not committed")
	tx.commit()
	if got := ids(s.drain(3)); !slices.Equal(got, []string{"a-1", "a-2", "a-3"}) {
		e.Fatalf("leased %v", got)
	}

	tx = e.begin()
	tx.enqueue(series("b", 3)...)
	s.quiet("it is not committed")
	tx.rollback()
	s.quiet("it was rolled back")
}

// hardMessages are messages that break careless encodings.
func hardMessages() []outbox.Message {
	bytes := everyByte()
	return []outbox.Message{
		{ID: "plain", Topic: topic, OrderingKey: "k", Payload: []byte("{}"), Headers: map[string]string{"a": "b"}},
		{ID: "nothing but a topic", Topic: topic},
		{ID: "empty payload", Topic: topic, OrderingKey: "k", Payload: []byte{}, Headers: map[string]string{}},
		{
			ID: "every byte", Topic: topic, OrderingKey: bytes, Payload: []byte(bytes),
			Headers: map[string]string{"bytes": bytes, "empty": ""},
		},
		{ID: "NUL", Topic: topic, OrderingKey: "\x00", Payload: []byte{0}, Headers: map[string]string{"nul": "\x00"}},
		{
			ID: "not UTF-8", Topic: topic, OrderingKey: "\xff\xfe", Payload: []byte{0xff, 0xfe},
			Headers: map[string]string{"h": "\xed\xa0\x80\xff"},
		},
		{
			ID: "looks escaped", Topic: topic, OrderingKey: `\x00`, Payload: []byte(`\x00`),
			Headers: map[string]string{"h": `\u0000`, "b": `base64:AA==`},
		},
		{
			ID: "quotes '\"\\ $1 %s {}", Topic: "topic'\"\\ $1", OrderingKey: "'\"\\", Payload: []byte("'\"\\"),
			Headers: map[string]string{"'\"\\": "'\"\\\n"},
		},
		{
			ID: "żółć 😀 \u202e", Topic: "thème-日本", OrderingKey: "ключ 🔑", Payload: []byte("日本語"),
			Headers: map[string]string{"çé": "ñ 🎈"},
		},
		{
			ID: strings.Repeat("i", 255), Topic: strings.Repeat("t", 255), OrderingKey: strings.Repeat("k", 1000),
			Payload: []byte("long"),
		},
		{ID: "many headers", Topic: topic, OrderingKey: "h", Headers: manyHeaders()},
		{ID: " spaces ", Topic: " t ", OrderingKey: " ", Payload: []byte(" "), Headers: map[string]string{" h ": " "}},
		{
			ID: "null", Topic: "null", OrderingKey: "null", Payload: []byte("null"),
			Headers: map[string]string{"null": "null"},
		},
	}
}

func manyHeaders() map[string]string {
	headers := map[string]string{}
	for i := range 200 {
		headers[fmt.Sprint("h", i)] = strings.Repeat("v", i)
	}
	return headers
}

func intact[TTx any](e *env[TTx]) {
	msgs := hardMessages()
	e.enqueue(msgs...)
	s := e.session()
	seqs := map[int64]string{}
	for i, l := range s.await(idsOf(msgs)...) {
		e.wantSame(l.Message, msgs[i])
		if want := driver.Shard(&msgs[i], s.hold.TotalShards); l.Shard != want {
			e.Errorf("%q is of shard %d, want %d", l.ID, l.Shard, want)
		}
		if other, double := seqs[l.Seq]; double {
			e.Errorf("%q and %q have the same Seq %d", l.ID, other, l.Seq)
		}
		if l.Attempts != 0 {
			e.Errorf("%q begins with %d attempts", l.ID, l.Attempts)
		}
		seqs[l.Seq] = l.ID
	}
}

// wantSame compares a message with the one that a reader gets.
func (j judge) wantSame(got, want outbox.Message) {
	j.Helper()
	switch {
	case got.ID != want.ID || got.Topic != want.Topic || got.OrderingKey != want.OrderingKey:
		j.Errorf("got ID %.80q, topic %.80q, key %.80q; want %.80q, %.80q, %.80q", got.ID, got.Topic, got.OrderingKey,
			want.ID, want.Topic, want.OrderingKey)
	case string(got.Payload) != string(want.Payload):
		j.Errorf("%.80q: payload of %d bytes %.80q, want %d bytes %.80q", want.ID, len(got.Payload), got.Payload,
			len(want.Payload), want.Payload)
	case !maps.Equal(got.Headers, want.Headers):
		j.Errorf("%.80q: headers %.200q, want %.200q", want.ID, got.Headers, want.Headers)
	}
}

func large[TTx any](e *env[TTx]) {
	m := message("large", "k")
	m.Payload = make([]byte, 1<<20)
	for i := range m.Payload {
		m.Payload[i] = byte(i * i >> 3)
	}
	e.enqueue(m)
	e.wantSame(e.session().drain(1)[0].Message, m)
}

func headerNames[TTx any](e *env[TTx]) {
	s := e.session()
	for i, name := range []string{"\x00", "a\x00b", "\xff", "\xed\xa0\x80"} {
		m := outbox.Message{ID: fmt.Sprint(i), Topic: topic, Headers: map[string]string{name: "v", "other": "w"}}
		err := e.inTx(func(tx TTx) error { return e.Writer.Enqueue(e.ctx, tx, m) })
		if err == nil {
			e.wantSame(s.drain(1)[0].Message, m)
		} else {
			s.quiet(fmt.Sprintf("header %q was refused: %v", name, err))
		}
	}
}

func badMessage[TTx any](e *env[TTx]) {
	good, s := message("good", "k"), e.session()
	for name, bad := range map[string]outbox.Message{
		"no topic":             {ID: "bad"},
		"NUL in the topic":     {ID: "bad", Topic: "a\x00b"},
		"topic that is long":   {ID: "bad", Topic: strings.Repeat("t", 256)},
		"ID that is long":      {ID: strings.Repeat("i", 256), Topic: topic},
		"ID that is no text":   {ID: "\xff", Topic: topic},
		"reserved header":      {ID: "bad", Topic: topic, Headers: map[string]string{"Txonce-Id": "x"}},
		"header without name":  {ID: "bad", Topic: topic, Headers: map[string]string{"": "x"}},
		"nothing whatsoever":   {},
		"bad and of our topic": {ID: "\x00", Topic: topic},
	} {
		for _, call := range [][]outbox.Message{{bad}, {good, bad}, {bad, good}} {
			var err error
			_ = e.inTx(func(tx TTx) error { // a handler that swallows the error, and commits if it can
				err = e.Writer.Enqueue(e.ctx, tx, call...)
				return nil
			})
			if !errors.Is(err, outbox.ErrBadMessage) {
				e.Fatalf("%s, in a call of %d: error %v, want ErrBadMessage", name, len(call), err)
			}
		}
	}
	s.quiet("each call was refused")
}

// keepsNothing changes everything that was passed, before the transaction commits.
func keepsNothing[TTx any](e *env[TTx]) {
	msgs := []outbox.Message{message("1", "k"), message("2", "k")}
	want := []outbox.Message{message("1", "k"), message("2", "k")}
	err := e.inTx(func(tx TTx) error {
		err := e.Writer.Enqueue(e.ctx, tx, msgs...)
		for i := range msgs {
			copy(msgs[i].Payload, "#######")
			msgs[i].Headers["id"] = "changed"
			msgs[i] = message("other", "other")
		}
		return err
	})
	if err != nil {
		e.Fatalf("enqueue: %v", err)
	}
	for i, l := range e.session().drain(2) {
		e.wantSame(l.Message, want[i])
	}
}

func enqueueNothing[TTx any](e *env[TTx]) {
	e.enqueue()
	e.session().quiet("nothing was enqueued")
}

func fiveThousand[TTx any](e *env[TTx]) {
	const n = 5000
	var msgs []outbox.Message
	for i := range n {
		msgs = append(msgs, message(fmt.Sprint(i), fmt.Sprint("key", i%50)))
	}
	e.enqueue(msgs...)
	next := map[string]int{}
	for _, l := range e.session().drain(n) {
		var i int
		if _, err := fmt.Sscan(l.ID, &i); err != nil || i/50 != next[l.OrderingKey] ||
			fmt.Sprint("key", i%50) != l.OrderingKey {
			e.Fatalf("key %q: number %d is message %s", l.OrderingKey, next[l.OrderingKey], l.ID)
		}
		next[l.OrderingKey]++
	}
}

func enqueuedAt[TTx any](e *env[TTx]) {
	before := e.stats().Now
	e.enqueue(message("1", "k"))
	after := e.stats().Now
	if before.IsZero() || after.Before(before) {
		e.Fatalf("Stats.Now was %v, and then %v", before, after)
	}
	const rounding = time.Millisecond
	if at := e.session().drain(1)[0].Enqueued; at.Before(before.Add(-rounding)) || at.After(after.Add(rounding)) {
		e.Fatalf("enqueued at %v, want between %v and %v", at, before, after)
	}
}
