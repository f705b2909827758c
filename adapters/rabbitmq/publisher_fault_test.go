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

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
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
		msgs = append(msgs, outbox.Message{
			ID: id, Topic: strings.TrimRight(id, "0123456789"), OrderingKey: id,
			Payload: []byte(id),
		})
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

// want checks answers: "" is a confirm, "plain", "topic", "permanent" and "away" are the kinds of errors, with a text
// after a colon that they say.
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

// TestPublisherLargeDisturbsNobody: a server closes the channel over a message that is too large for it.
func TestPublisherLargeDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, s := fakeSite(rabbitmqtest.Config{MaxMessageBytes: 2 << 20})
		declare(t, s.Dial, "a", nil)
		f := &faultEnv{T: t, at: at, s: s, p: newPublisher(t, rabbitmq.PublisherConfig{Dial: at.dial})}
		f.fate(map[string]rabbitmqtest.Fate{"1": rabbitmqtest.Withhold})
		time.AfterFunc(time.Second, s.Release)
		large := outbox.Message{ID: "2", Topic: "a", Payload: make([]byte, 2<<20+1)}
		f.want(f.send(outbox.Message{ID: "1", Topic: "a"}, large, outbox.Message{ID: "3", Topic: "a"}), "",
			"permanent: max_message_size", "")
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
		// more than the socket holds
		f.want(f.send(large, large, large, large, large), "away", "away", "away", "away", "away")
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

func lapse(d time.Duration) { <-time.After(d) }

// TestPublisherIsolates: a queue that does not confirm delays the others once, and then no more. Few messages are sent
// to it, and none while confirms for it are missing.
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
		within(1600*time.Millisecond, "the first time", []string{stuck[0], "b1"},
			"away: confirmed nothing to it for 1.5s", "")
		away := slices.Repeat([]string{"away: "}, len(stuck))
		within(1100*time.Millisecond, "on a channel of its own", append([]string{"b2"}, stuck...),
			append([]string{""}, away...)...)
		for i := range 5 {
			within(0, "while confirms are owed", append([]string{fmt.Sprint("b", i+3)}, stuck...),
				append([]string{""}, away...)...)
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
