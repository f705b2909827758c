package outboxtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// arrivalCases are about messages that arrive.
func arrivalCases() []publisherCase {
	const (
		confirmed = "28: only what the broker confirmed counts"
		same      = "33: the ID and everything else arrives as it was enqueued"
		order     = "25: order within a key"
	)
	return []publisherCase{
		{name: "a confirmed message is in the broker", hazard: confirmed, run: confirmedArrives},
		{name: "a call without messages", hazard: confirmed, run: noMessages},
		{name: "1,000 messages in one call", hazard: confirmed, run: thousand},
		{name: "concurrent calls", hazard: confirmed, run: concurrentCalls},
		{name: "ID, key, headers and payload arrive", hazard: same, run: fieldsArrive},
		{name: "two messages with one ID arrive", hazard: same, run: oneIDArrivesTwice},
		{name: "messages without key arrive", hazard: same, run: keylessArrive},
		{name: "an empty payload arrives", hazard: same, run: emptyPayload},
		{name: "a binary key arrives", hazard: same, run: binaryKey},
		{name: "binary header values arrive", hazard: same, run: binaryHeader},
		{name: "Publish leaves the messages as they are", hazard: same, run: leavesMessages},
		{name: "order within a key over successive calls", hazard: order, run: orderOverCalls},
		{name: "order within a key in one call", hazard: order, together: true, run: orderInCall},
	}
}

func confirmedArrives(e *publisherEnv) {
	var msgs []outbox.Message
	for i := range 10 {
		msgs = append(msgs, e.message(fmt.Sprint("m", i), fmt.Sprint("key", i)))
	}
	e.confirm(msgs...)
	e.wantArrived(msgs...)
}

// oneIDArrivesTwice publishes two rows of an outbox that have the same ID and content. A broker that drops repeats must
// be given something else to compare.
func oneIDArrivesTwice(e *publisherEnv) {
	e.confirm(e.message("twin", "k"))
	e.confirm(e.message("twin", "k"))
	e.confirm(e.message("keyless", ""))
	e.confirm(e.message("keyless", ""))
	if _, times := e.arrived(e.topic, 4); times["twin"] != 2 || times["keyless"] != 2 {
		e.Errorf("of two messages with one ID %d arrived, and of two without key %d", times["twin"], times["keyless"])
	}
}

func noMessages(e *publisherEnv) {
	if errs := e.publisher.Publish(e.ctx, nil); len(errs) != 0 {
		e.Fatalf("answers %v for no messages", errs)
	}
	e.wantArrived()
}

func thousand(e *publisherEnv) {
	var msgs []outbox.Message
	for i := range 1000 {
		msgs = append(msgs, e.message(fmt.Sprint("m", i), fmt.Sprint("key", i)))
	}
	e.confirm(msgs...)
	e.wantArrived(msgs...)
}

// concurrentCalls have different keys, as calls of a relay have. Each call gets answers for its own messages.
func concurrentCalls(e *publisherEnv) {
	var mu sync.Mutex
	var all []outbox.Message
	var calls sync.WaitGroup
	for c := range 8 {
		var batches [][]outbox.Message
		for b := range 10 {
			var batch []outbox.Message
			for i := range 5 {
				batch = append(batch, e.message(fmt.Sprintf("m-%d-%d-%d", c, b, i), fmt.Sprint("key-", c, i)))
			}
			batches = append(batches, batch)
		}
		calls.Go(func() {
			for _, batch := range batches {
				for i, err := range e.publisher.Publish(e.ctx, batch) {
					if err != nil {
						e.Errorf("message %q: %v", batch[i].ID, err)
					}
				}
				mu.Lock()
				all = append(all, batch...)
				mu.Unlock()
			}
		})
	}
	calls.Wait()
	e.wantArrived(all...)
}

func fieldsArrive(e *publisherEnv) {
	msgs := []outbox.Message{
		e.message("plain", "key"),
		e.laidOut(outbox.Message{
			ID: "no headers of its own", Topic: e.topic, OrderingKey: "k1",
			Payload: []byte("{}"),
		}),
		e.laidOut(outbox.Message{
			ID: strings.Repeat("i", 255), Topic: e.topic, OrderingKey: strings.Repeat("k", 100),
			Payload: []byte(strings.Repeat("p", 10_000)),
			Headers: map[string]string{"content-type": "application/json", "b": "'\"\\ \n", "c": "ñ 🎈"},
		}),
		e.laidOut(outbox.Message{ID: "żółć 😀", Topic: e.topic, OrderingKey: "ключ 🔑", Payload: []byte("日本語")}),
	}
	e.confirm(msgs...)
	e.wantArrived(msgs...)
}

func keylessArrive(e *publisherEnv) {
	msgs := []outbox.Message{e.message("1", ""), e.message("2", ""), e.message("3", "")}
	e.confirm(msgs...)
	e.wantArrived(msgs...)
}

func emptyPayload(e *publisherEnv) {
	one, two := e.message("nil", "k1"), e.message("empty", "k2")
	one.Payload, two.Payload = nil, []byte{}
	e.confirm(one, two)
	e.wantArrived(one, two)
}

func everyByte() string {
	var all strings.Builder
	for b := range 256 {
		all.WriteByte(byte(b))
	}
	return all.String()
}

func binaryKey(e *publisherEnv) {
	msgs := []outbox.Message{
		e.message("every byte", everyByte()), e.message("NUL", "\x00"), e.message("not UTF-8", "\xff\xfe"),
		e.message("other", "\xff\xfd"),
	}
	msgs[0].Payload = []byte(everyByte())
	e.confirm(msgs...)
	e.wantArrived(msgs...)
}

func binaryHeader(e *publisherEnv) {
	m := e.message("m", "k")
	maps.Copy(m.Headers, map[string]string{"bytes": everyByte(), "empty": "", "nul": "\x00"})
	e.confirm(m)
	e.wantArrived(m)
}

func leavesMessages(e *publisherEnv) {
	msgs := []outbox.Message{e.message("1", "k1"), e.message("2", "k2")}
	before := slices.Clone(msgs)
	for i := range before {
		before[i].Headers, before[i].Payload = maps.Clone(msgs[i].Headers), slices.Clone(msgs[i].Payload)
	}
	e.confirm(msgs...)
	for i := range msgs {
		e.wantSame(msgs[i], before[i])
	}
}

func orderOverCalls(e *publisherEnv) {
	const keys, calls = 5, 30
	want := map[string][]string{}
	for c := range calls {
		var msgs []outbox.Message
		for k := range keys {
			m := e.message(fmt.Sprintf("%d-%d", k, c), fmt.Sprint("key", k))
			want[m.OrderingKey] = append(want[m.OrderingKey], m.ID)
			msgs = append(msgs, m)
		}
		e.confirm(msgs...)
	}
	e.wantOrderArrived(want, keys*calls)
}

func (e *publisherEnv) wantOrderArrived(want map[string][]string, n int) {
	e.Helper()
	got := map[string][]string{}
	for _, m := range e.Read(e.t, e.topic, n) {
		got[m.OrderingKey] = append(got[m.OrderingKey], m.Headers[outbox.HeaderID])
	}
	for key, list := range want {
		if !slices.Equal(got[key], list) {
			e.Errorf("key %q: the broker has %s, want %s", key, few(got[key]), few(list))
		}
	}
}

func orderInCall(e *publisherEnv) {
	want := map[string][]string{}
	var msgs []outbox.Message
	for i := range 50 {
		m := e.message(fmt.Sprint("m", i), fmt.Sprint("key", i%3))
		want[m.OrderingKey] = append(want[m.OrderingKey], m.ID)
		msgs = append(msgs, m)
	}
	e.confirm(msgs...)
	e.wantOrderArrived(want, len(msgs))
}
