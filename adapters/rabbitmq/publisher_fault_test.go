package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/internal/test/rabbitmqtest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// faulty runs do with a Publisher to a fake that has the queues a, b and c.
func faulty(t *testing.T, cfg rabbitmq.PublisherConfig, do func(f *faultEnv)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		at, s := fakeSite(rabbitmqtest.Config{})
		for _, q := range []string{"a", "b", "c"} {
			declare(t, s.Dial, q, nil)
		}
		cfg.Dial = at.dial
		do(&faultEnv{T: t, at: at, s: s, p: newPublisher(t, cfg)})
	})
}

type faultEnv struct {
	*testing.T
	at *site
	s  *rabbitmqtest.Server
	p  *rabbitmq.Publisher
}

// publish sends messages with these IDs to topics of the same name less its digits, within two seconds.
func (f *faultEnv) publish(ids ...string) []error {
	f.Helper()
	var msgs []outbox.Message
	for _, id := range ids {
		msgs = append(msgs, outbox.Message{ID: id, Topic: strings.TrimRight(id, "0123456789"), Key: id, Payload: []byte(id)})
	}
	return f.send(msgs...)
}

func (f *faultEnv) send(msgs ...outbox.Message) []error {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 2*time.Second)
	defer cancel()
	errs := f.p.Publish(ctx, msgs)
	if errs == nil {
		errs = make([]error, len(msgs))
	}
	return errs
}

// want checks answers: "" is a confirm, "plain", "topic", "permanent" and "away" are the kinds of errors, with a text after a colon that they say.
func (f *faultEnv) want(errs []error, want ...string) {
	f.Helper()
	if len(errs) != len(want) {
		f.Fatalf("%d answers: %v", len(errs), errs)
	}
	for i, err := range errs {
		kind := ""
		switch {
		case err == nil:
		case outbox.IsPermanent(err):
			kind = "permanent"
		case errors.As(err, new(*outbox.UnavailableError)):
			kind = "away"
		case errors.As(err, new(*outbox.TopicError)):
			kind = "topic"
		default:
			kind = "plain"
		}
		wantKind, says, _ := strings.Cut(want[i], ": ")
		if kind != wantKind || err != nil && !strings.Contains(err.Error(), says) {
			f.Errorf("answer %d is %q: %v; want %q", i+1, kind, err, want[i])
		}
	}
}

// arrived compares the MessageIds in queue.
func (f *faultEnv) arrived(queue string, want ...string) {
	f.Helper()
	var got []string
	for _, m := range f.s.Messages(queue) {
		got = append(got, m.MessageId)
	}
	if !slices.Equal(got, want) {
		f.Errorf("queue %s has %q, want %q", queue, got, want)
	}
}

// dialled checks how often the Publisher has dialled.
func (f *faultEnv) dialled(want int) {
	f.Helper()
	if n := f.at.dials(); n != want {
		f.Errorf("dialled %d times, want %d", n, want)
	}
}

func (f *faultEnv) fate(fates map[string]rabbitmqtest.Fate) {
	f.s.OnPublish(func(p rabbitmqtest.Publish) rabbitmqtest.Fate { return fates[p.Message.MessageId] })
}

func TestPublisherAnswersEachMessage(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{"a2": rabbitmqtest.Nack, "b1": rabbitmqtest.NackButTake})
		f.want(f.publish("a1", "a2", "b1", "nowhere", "c1", "a3"), "", "plain: basic.nack", "plain: basic.nack", `topic: queue "nowhere"`, "", "")
		f.arrived("a", "a1", "a3")
		f.fate(nil)
		f.want(f.publish("a2"), "")
		f.dialled(1)
		if n := f.s.Connections(); n != 1 {
			t.Errorf("%d connections", n)
		}
	})
}

// TestPublisherReturns: a return and its confirm come through two Go channels. If the Publisher saw only the confirm, the message
// would be lost.
func TestPublisherReturns(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		var ids, want []string
		for i := range 500 {
			ids, want = append(ids, fmt.Sprint("nowhere", i), fmt.Sprint("a", i)), append(want, "topic: NO_ROUTE", "")
		}
		f.want(f.publish(ids...), want...)
	})
}

// TestPublisherSameID: two outboxes may share a Publisher, and have messages with the same ID. A return does not show which of them
// came back, so both are sent again; the destination of each is known.
func TestPublisherSameID(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.want(f.send(outbox.Message{ID: "1", Topic: "a"}, outbox.Message{ID: "1", Topic: "nowhere"}, outbox.Message{ID: "1", Topic: "b"}), "", "topic: NO_ROUTE", "")
	})
}

func TestPublisherConfirmsOutOfOrder(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{"a1": rabbitmqtest.Withhold, "a3": rabbitmqtest.Withhold, "b2": rabbitmqtest.Nack})
		time.AfterFunc(time.Second, f.s.Release)
		f.want(f.publish("a1", "a2", "nowhere", "a3", "b2", "b3"), "", "", "topic: NO_ROUTE", "", "plain: nack", "")
		f.dialled(1)
	})
}

func TestPublisherUnconfirmed(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{"a1": rabbitmqtest.Withhold})
		f.want(f.publish("a1", "b1"), "away: may have arrived", "") // a1 delays no other message
		f.fate(map[string]rabbitmqtest.Fate{"b2": rabbitmqtest.Withhold})
		old := time.AfterFunc(time.Second, f.s.Release) // of the connection that was cut, number 1, and of the new one
		f.want(f.publish("b2"), "")
		old.Stop()
		f.dialled(2)
		f.arrived("a", "a1")
		f.arrived("b", "b1", "b2")
	})
}

func TestPublisherCutBeforeConfirm(t *testing.T) {
	for fate, arrived := range map[rabbitmqtest.Fate][]string{
		rabbitmqtest.CutAfter: {"a1", "a1"}, rabbitmqtest.CutBefore: {"a1"},
	} {
		faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
			f.want(f.publish("b1"), "")
			f.fate(map[string]rabbitmqtest.Fate{"a1": fate})
			f.want(f.publish("a1"), "away: connection lost before the confirm")
			f.fate(nil)
			f.want(f.publish("a1"), "") // the same ID
			f.arrived("a", arrived...)
			f.dialled(2)
		})
	}
}

// byExchange sends messages to the exchange that is their topic, less everything from a slash on.
func byExchange(m *outbox.Message) (exchange, key string) {
	exchange, key, _ = strings.Cut(m.Topic, "/")
	return exchange, key
}

func TestPublisherExchanges(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{Route: byExchange}, func(f *faultEnv) {
		on := func(do func(ch rabbitmq.Channel) error) { onChannel(f.T, f.s.Dial, do) }
		on(func(ch rabbitmq.Channel) error {
			return errors.Join(ch.ExchangeDeclare("events", "topic", true, false, false, false, nil), ch.QueueBind("a", "order.*", "events", false, nil))
		})
		msg := func(id, topic string) outbox.Message { return outbox.Message{ID: id, Topic: topic, Key: id} }
		for at := range 4 { // a missing exchange disturbs no other message, at any position
			msgs := []outbox.Message{msg("1", "events/order.new"), msg("2", "events/order.paid"), msg("3", "/b")}
			want := []string{"", "", ""}
			f.want(f.send(slices.Insert(msgs, at, msg("x", "typo/k"))...), slices.Insert(want, at, `plain: exchange "typo"`)...)
		}
		f.want(f.send(msg("y", "events/other")), `plain: exchange "events" with routing key "other": returned`)
		f.dialled(1)
		f.arrived("b", "3", "3", "3", "3")
		// Others on the channel are not disturbed: what waits for its confirm is not sent again.
		f.fate(map[string]rabbitmqtest.Fate{"3": rabbitmqtest.Withhold})
		time.AfterFunc(time.Second, f.s.Release)
		f.want(f.send(msg("3", "/b"), msg("x", "another typo/k")), "", `plain: exchange "another typo"`)
		f.arrived("b", "3", "3", "3", "3", "3")
		f.fate(nil)

		// The exchange is declared, and deleted while the Publisher knows it. Then it closes the channel.
		on(func(ch rabbitmq.Channel) error {
			return errors.Join(ch.ExchangeDeclare("typo", "fanout", true, false, false, false, nil), ch.QueueBind("c", "", "typo", false, nil))
		})
		f.want(f.send(msg("x", "typo/k")), "")
		f.s.DeleteExchange("typo")
		f.want(f.send(msg("4", "/b"), msg("x", "typo/k"), msg("z", "typo/k"), msg("5", "/b")), "", `plain: exchange "typo"`, `plain: exchange "typo"`, "")
		f.want(f.send(msg("x", "typo/k"), msg("6", "/b")), `plain: NOT_FOUND`, "")
		f.dialled(1)
	})
}

// When all messages of a topic go to one exchange, a missing or closed exchange is the fault of the topic, and not of a message.
func TestPublisherExchangeOfATopic(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{Route: func(m *outbox.Message) (exchange, key string) { return m.Topic, m.Key }}, func(f *faultEnv) {
		f.s.Deny(func(a rabbitmqtest.Access) bool { return a.Name == "amq.topic" })
		for range 2 { // while it is new, and once it is known
			f.want(f.send(outbox.Message{ID: "1", Topic: "typo", Key: "k"}, outbox.Message{ID: "2", Topic: "amq.topic", Key: "k"}),
				`topic: exchange "typo"`, `topic: exchange "amq.topic"`)
		}
	})
	faulty(t, rabbitmq.PublisherConfig{Exchange: "typo"}, func(f *faultEnv) {
		f.want(f.publish("a1", "b1"), `topic: exchange "typo"`, `topic: exchange "typo"`)
	})
}

func TestPublisherAccessRefused(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{Route: byExchange}, func(f *faultEnv) {
		f.s.Deny(func(a rabbitmqtest.Access) bool { return a.Name == "amq.topic" })
		msg := func(id, topic string) outbox.Message { return outbox.Message{ID: id, Topic: topic, Key: id} }
		f.want(f.send(msg("1", "/a"), msg("2", "amq.topic/k"), msg("3", "/a"), msg("4", "amq.topic/k")), "",
			`plain: grant this user write permission`, "", `plain: exchange "amq.topic"`)
		before := len(f.s.Messages("a"))
		f.fate(map[string]rabbitmqtest.Fate{"5": rabbitmqtest.Withhold})
		for range 5 { // from now on it disturbs no other message
			time.AfterFunc(time.Second, f.s.Release)
			f.want(f.send(msg("5", "/a"), msg("2", "amq.topic/k"), msg("6", "/a")), "", "plain: ACCESS_REFUSED", "")
		}
		if n := len(f.s.Messages("a")) - before; n != 10 {
			t.Errorf("%d messages arrived of 10", n)
		}
		f.s.Deny(nil)
		f.want(f.send(msg("2", "amq.topic/k")), "plain: NO_ROUTE")
		f.dialled(1)
	})
}

// TestPublisherLargeDisturbsNobody: a server closes the channel over a message that is too large for it.
func TestPublisherLargeDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, s := fakeSite(rabbitmqtest.Config{MaxMessageBytes: 2 << 20})
		declare(t, s.Dial, "a", nil)
		f := &faultEnv{T: t, at: at, s: s, p: newPublisher(t, rabbitmq.PublisherConfig{Dial: at.dial})}
		f.fate(map[string]rabbitmqtest.Fate{"1": rabbitmqtest.Withhold})
		time.AfterFunc(time.Second, s.Release)
		large := outbox.Message{ID: "2", Topic: "a", Payload: make([]byte, 2<<20+1)}
		f.want(f.send(outbox.Message{ID: "1", Topic: "a"}, large, outbox.Message{ID: "3", Topic: "a"}), "", "permanent: max_message_size", "")
		f.arrived("a", "1", "3")
		f.dialled(1)
	})
}

func TestPublisherBlocked(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.want(f.publish("a1"), "")
		f.s.Block("low on disk")
		f.want(f.publish("a2"), "away: low on disk") // at its deadline
		began := time.Now()
		f.want(f.publish("a3"), "away: connection.blocked")
		if took := time.Since(began); took > 0 {
			t.Errorf("asked again, it took %v to say so", took)
		}
		f.s.Unblock()
		synctest.Wait()
		f.want(f.publish("a4"), "")
		f.dialled(1)
		f.arrived("a", "a1", "a2", "a4") // a2 was on its way
	})
}

func TestPublisherSilence(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.want(f.publish("a1"), "")
		resume := f.s.Pause()
		began := time.Now()
		errs := f.p.Publish(f.Context(), []outbox.Message{{ID: "1", Topic: "a"}}) // no deadline of its own
		f.want(errs, "away: not confirmed")
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		large := outbox.Message{ID: "2", Topic: "a", Payload: make([]byte, 1<<19)}
		f.want(f.send(large, large, large, large, large), "away", "away", "away", "away", "away") // more than the socket holds
		resume()
		synctest.Wait()
		f.want(f.publish("a2"), "")
	})
}

// A relay in front of the Publisher rests it while the server is away, and goes on when the server is back.
func TestPublisherRestsBehindRelay(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		queue := outboxtest.NewMemory()
		r, err := relay.New(relay.Config{Queue: queue, Publisher: f.p, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(f.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- r.Run(ctx) }()
		f.want(f.publish("a1"), "")
		f.s.Stop()
		before := f.at.dials()
		for n := range 60 { // a minute
			err := queue.InTx(ctx, func(tx *outboxtest.Tx) error {
				return queue.Enqueue(ctx, tx, outbox.Message{ID: fmt.Sprint("m", n), Topic: "a"})
			})
			if err != nil {
				t.Error(err)
			}
			lapse(time.Second)
		}
		if n := f.at.dials() - before; n < 5 || n > 60 {
			t.Errorf("the Publisher dialled %d times in a minute", n)
		}
		f.s.Start()
		lapse(30 * time.Second)
		if stats, err := queue.Stats(ctx); err != nil || stats.Pending+stats.Parked+stats.Delayed+stats.Waiting != 0 {
			t.Errorf("%+v, %v: want all messages published half a minute after the server is back", stats, err)
		}
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestPublisherClose(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.want(f.publish("a1"), "")
		f.s.Pause()
		answers := make(chan []error, 1)
		go func() { answers <- f.publish("a2", "b2") }()
		lapse(time.Second)
		began := time.Now()
		if err := f.p.Close(); err != nil {
			t.Error(err)
		}
		f.want(<-answers, "away", "away")
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		f.want(f.publish("a3"), "away: "+rabbitmq.ErrPublisherClosed.Error())
		if err := f.p.Close(); err != nil {
			t.Error(err)
		}
	})
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) { // never used
		if err := f.p.Close(); err != nil {
			t.Error(err)
		}
		f.dialled(0)
	})
}

func TestPublisherRefusesMessages(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, tt := range map[string]struct {
		msg  outbox.Message
		says string
	}{
		"payload":      {outbox.Message{Topic: "a", Payload: make([]byte, 1001)}, "1001 bytes, and PublisherConfig.MaxMessageBytes is 1000"},
		"headers":      {outbox.Message{Topic: "a", Headers: map[string]string{"h": strings.Repeat("x", 5000)}}, "PublisherConfig.FrameBytes"},
		"key":          {outbox.Message{Topic: "a", Key: strings.Repeat("x", 5000)}, "PublisherConfig.FrameBytes"},
		"header name":  {outbox.Message{Topic: "a", Headers: map[string]string{long: ""}}, "has 256 bytes"},
		"CC":           {outbox.Message{Topic: "a", Headers: map[string]string{"CC": "a@example.org"}}, "the header CC as a list of further routing keys"},
		"BCC":          {outbox.Message{Topic: "a", Headers: map[string]string{"BCC": ""}}, "the header BCC as a list of further routing keys"},
		"topic":        {outbox.Message{Topic: long}, "at most 255"},
		"content type": {outbox.Message{Topic: "a", Headers: map[string]string{"content-type": strings.Repeat("x", 5000)}}, "one frame of 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			faulty(t, rabbitmq.PublisherConfig{MaxMessageBytes: 1000, FrameBytes: 4096}, func(f *faultEnv) {
				tt.msg.ID = "too much"
				f.want(f.send(outbox.Message{ID: "1", Topic: "b"}, tt.msg, outbox.Message{ID: "2", Topic: "b"}), "", "permanent: "+tt.says, "")
				f.arrived("b", "1", "2")
				f.arrived("a")
				f.dialled(1)
			})
		})
	}
}

// TestPublisherRoutePanics: a message that Route panics for fails alone.
func TestPublisherRoutePanics(t *testing.T) {
	cfg := rabbitmq.PublisherConfig{Route: func(m *outbox.Message) (string, string) {
		if m.ID == "bad" {
			panic("no region")
		}
		return "", m.Topic
	}}
	faulty(t, cfg, func(f *faultEnv) {
		errs := f.send(outbox.Message{ID: "1", Topic: "b"}, outbox.Message{ID: "bad", Topic: "b"}, outbox.Message{ID: "2", Topic: "b"})
		f.want(errs, "", `plain: rabbitmq: message "bad" of topic "b": PublisherConfig.Route panicked: no region`, "")
		f.arrived("b", "1", "2")
	})
}

// TestPublisherFillsFrame sends headers of all sizes around the limit. The server cuts the connection when the headers are too
// large, and the Publisher must not refuse headers that fit.
func TestPublisherFillsFrame(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		refused, sent := 0, 0
		for n := rabbitmq.DefaultFrameBytes - 300; n < rabbitmq.DefaultFrameBytes+10; n += 5 {
			errs := f.send(outbox.Message{ID: fmt.Sprint(n), Topic: "a", Headers: map[string]string{"h": strings.Repeat("x", n)}})
			if errs[0] == nil {
				sent++
				continue
			}
			refused++
			f.want(errs, "permanent: one frame")
		}
		if refused < 3 || sent < 30 {
			t.Errorf("%d refused, %d sent", refused, sent)
		}
		f.dialled(1)
	})
}

func TestPublisherProperties(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		enqueued := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
		headers := outbox.PlainHeaders(outbox.Leased{
			Message: outbox.Message{ID: "id", Headers: map[string]string{"content-type": "application/json", "bytes": "\xff"}}, Seq: 7, Enqueued: enqueued,
		})
		f.want(f.send(outbox.Message{ID: "id", Topic: "a", Key: "k", Payload: []byte("{}"), Headers: headers}), "")
		d := f.s.Messages("a")[0]
		if d.MessageId != "id" || d.DeliveryMode != amqp.Persistent || d.ContentType != "application/json" || !d.Timestamp.Equal(enqueued.Truncate(time.Second)) {
			t.Errorf("properties %+v", d)
		}
		if d.Headers[rabbitmq.HeaderKey] != "k" || d.Headers[outbox.HeaderSequence] != "7" || fmt.Sprintf("%T", d.Headers["bytes"]) != "[]uint8" {
			t.Errorf("headers %v", d.Headers)
		}
	})
}

func TestPublisherRefusesItsConfig(t *testing.T) {
	dial := rabbitmqtest.NewServer(rabbitmqtest.Config{}).Dial
	for says, cfg := range map[string]rabbitmq.PublisherConfig{
		"PublisherConfig.Dial is required":             {},
		"PublisherConfig.Exchange is \"e\", and Route": {Dial: dial, Exchange: "e", Route: byExchange},
		"PublisherConfig.Exchange has 300 bytes":       {Dial: dial, Exchange: strings.Repeat("e", 300)},
		"PublisherConfig.MaxMessageBytes is -1":        {Dial: dial, MaxMessageBytes: -1},
		"PublisherConfig.FrameBytes is 100":            {Dial: dial, FrameBytes: 100},
	} {
		if _, err := rabbitmq.NewPublisher(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want an error that says %s", err, says)
		}
	}
	_, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{MaxMessageBytes: -1, FrameBytes: 1})
	for _, says := range []string{"Dial", "MaxMessageBytes", "FrameBytes"} { // all at once
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want it to name %s", err, says)
		}
	}
}

func lapse(d time.Duration) { <-time.After(d) }

// TestPublisherIsolates: a queue that does not confirm delays the others once, and then no more. Few messages are sent to it, and
// none while confirms for it are missing.
func TestPublisherIsolates(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		withheld := map[string]rabbitmqtest.Fate{}
		var stuck []string
		for i := range 30 {
			id := fmt.Sprint("a", i)
			stuck = append(stuck, id)
			withheld[id] = rabbitmqtest.Withhold
		}
		f.fate(withheld)
		within := func(most time.Duration, what string, ids []string, want ...string) {
			t.Helper()
			began := time.Now()
			f.want(f.publish(ids...), want...)
			if took := time.Since(began); took > most {
				t.Errorf("%s: it took %v, want %v at the most", what, took, most)
			}
		}
		within(1600*time.Millisecond, "the first time", []string{stuck[0], "b1"}, "away: confirmed nothing to it for 1.5s", "")
		away := slices.Repeat([]string{"away: "}, len(stuck))
		within(1100*time.Millisecond, "on a channel of its own", append([]string{"b2"}, stuck...), append([]string{""}, away...)...)
		for i := range 5 {
			within(0, "while confirms are owed", append([]string{fmt.Sprint("b", i+3)}, stuck...), append([]string{""}, away...)...)
		}
		within(0, "alone", stuck[:1], "away: earlier messages to it are not confirmed yet")
		f.want(f.publish("c1"), "") // and the Publisher as a whole does not rest
		if n := len(f.s.Messages("a")); n != 1+16 {
			t.Errorf("%d messages were sent to the queue that does not confirm; want 17", n)
		}
		f.fate(nil)
		f.s.Release()
		synctest.Wait()
		confirmed := make([]string, len(stuck))
		f.want(f.publish(stuck[:16]...), confirmed[:16]...)
		within(0, "when it confirms again", stuck, confirmed...)
		f.dialled(2)
	})
}

// TestPublisherIsolatesForAWhile: the Publisher does not wait for ever for a confirm that never comes.
func TestPublisherIsolatesForAWhile(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		f.fate(map[string]rabbitmqtest.Fate{"a1": rabbitmqtest.Withhold})
		f.want(f.publish("a1"), "away")
		f.want(f.publish("a1"), "away")
		f.fate(nil)
		f.want(f.publish("a1"), "away: earlier messages")
		lapse(11 * time.Second)
		f.want(f.publish("a1"), "")
	})
}
