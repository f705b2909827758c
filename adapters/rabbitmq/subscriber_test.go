package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// TestChannelClosedInMidHandler: the server takes messages away when a handler is too slow. Its context ends, nothing
// is acknowledged, and its answer is dropped: the message is delivered again.
func TestChannelClosedInMidHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		s := fake(t, rabbitmqtest.Config{ConsumerTimeout: timeout})
		var cancelled atomic.Bool
		p := &answers{}
		p.say = func(ctx context.Context, _ *consumer.Message) error {
			if len(p.all()) == 1 {
				<-ctx.Done()
				cancelled.Store(true)
			}
			return nil
		}
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "m"})
		// which is not told the server's timeout
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Grace: time.Second})
		lapse(time.Minute)
		if got := p.all(); len(got) != 2 || !cancelled.Load() || got[1].Attempt != 1 {
			t.Errorf("%d deliveries, handler cancelled: %v; want the message again, and that the first one is not counted", len(got), cancelled.Load())
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}

// TestSlowMessageGoesBackAlone: a message near the server's timeout goes back, its handler goes on, and the other
// messages in the prefetch are not delivered again.
func TestSlowMessageGoesBackAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		s := fake(t, rabbitmqtest.Config{ConsumerTimeout: timeout})
		var cancelled, lost atomic.Int64
		var claimed sync.Map
		p := &answers{}
		p.say = func(ctx context.Context, m *consumer.Message) error {
			wait := time.Second / 2
			switch _, again := claimed.LoadOrStore(m.ID, true); {
			case again: // a duplicate, as a Consumer finds it out
				return nil
			case m.ID == "slow":
				wait = 5 * timeout / 2
			}
			select {
			case <-ctx.Done():
				cancelled.Add(1)
				return ctx.Err()
			case <-time.After(wait):
				return nil
			}
		}
		msgs := []amqp.Publishing{{MessageId: "slow"}}
		for i := range 20 {
			msgs = append(msgs, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		send(t, s.Dial, workQueue, msgs...)
		b := subscribe(t, s, rabbitmq.SubscriberConfig{
			Processor: p, ConsumerTimeout: timeout, Grace: time.Second, Concurrency: 2,
			Trace: &driver.SourceTrace{Lost: func(context.Context, driver.SourceEvent) { lost.Add(1) }},
		})
		lapse(timeout - time.Second)
		if log := b.log.String(); !strings.Contains(log, "messages are not finished: they go back to the queue alone") {
			t.Errorf("nothing says that the message goes back:\n%s", log)
		}
		lapse(2 * time.Minute)
		if n := lost.Load(); n > 0 || cancelled.Load() > 0 {
			t.Errorf("%d channels were lost, and %d handlers cancelled", n, cancelled.Load())
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		nothingLeft(t, s)
	})
}

// TestRejected: a message that the Processor keeps nowhere stays in the queue, and Run says so.
func TestRejected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		p := &answers{say: func(_ context.Context, m *consumer.Message) error {
			if m.ID == "2" {
				return errors.New("poison")
			}
			return nil
		}}
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p})
		send(t, s.Dial, workQueue, amqp.Publishing{MessageId: "1"}, amqp.Publishing{MessageId: "2"})
		<-b.done
		if b.err == nil || !strings.Contains(b.err.Error(), "given up on and kept nowhere") ||
			!strings.Contains(b.err.Error(), "poison") {
			t.Errorf("Run = %v; want the message and why", b.err)
		}
		if left := s.Messages(workQueue); len(left) != 1 || left[0].MessageId != "2" {
			t.Errorf("the queue holds %v, want message 2", left)
		}
	})
}

// TestPrefetch: the Subscriber holds at most Prefetch messages, and drains 1,000. A stop gives back the messages that
// are not being handled.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fake(t, rabbitmqtest.Config{})
		msgs := make([]amqp.Publishing, 1000)
		for i := range msgs {
			msgs[i].MessageId = fmt.Sprint(i)
		}
		send(t, s.Dial, workQueue, msgs...)
		var most atomic.Int64
		p := &answers{say: func(context.Context, *consumer.Message) error {
			state, _ := s.Queue(workQueue)
			most.Store(max(most.Load(), int64(state.Unacked)))
			lapse(time.Millisecond)
			return nil
		}}
		b := subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Prefetch: 40, Concurrency: 2, MaxBatch: 10})
		lapse(100 * time.Millisecond)
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		state, _ := s.Queue(workQueue)
		if done := len(p.all()); done == 0 || done == 1000 || state.Ready != 1000-done || state.Unacked != 0 {
			t.Errorf("stopped after %d messages, and the queue holds %+v", done, state)
		}
		subscribe(t, s, rabbitmq.SubscriberConfig{Processor: p, Prefetch: 40, Concurrency: 2, MaxBatch: 10})
		lapse(10 * time.Second)
		if len(p.all()) != 1000 || most.Load() > 40 {
			t.Errorf("%d messages handled, want each of 1000 once; %d held at once, want 40 at the most", len(p.all()),
				most.Load())
		}
		nothingLeft(t, s)
	})
}

// TestServerSaysNo: an error that waiting cannot remove ends Run, with the remedy in the error.
func TestServerSaysNo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cfg  rabbitmq.SubscriberConfig
		prep func(s *rabbitmqtest.Server)
		then func(s *rabbitmqtest.Server) // while it runs
		want string
	}{
		{
			name: "no such queue", prep: func(s *rabbitmqtest.Server) { s.DeleteQueue(workQueue) },
			want: "set Declare, or create it",
		},
		{
			name: "deleted while it consumes", then: func(s *rabbitmqtest.Server) { s.DeleteQueue(workQueue) },
			want: "does not exist, or was deleted",
		},
		{
			name: "no permission", want: "grant this user", prep: func(s *rabbitmqtest.Server) {
				s.Deny(func(a rabbitmqtest.Access) bool { return a.Operation == "read" })
			},
		},
		{
			name: "permission lost", want: "grant this user", then: func(s *rabbitmqtest.Server) {
				s.Deny(func(a rabbitmqtest.Access) bool { return a.Operation == "read" })
				s.Cut()
			},
		},
		{name: "other properties", cfg: rabbitmq.SubscriberConfig{Declare: true, Spec: rabbitmq.QueueSpec{Quorum: true}}, want: "differs from Spec"},
		{name: "not there at first", prep: func(s *rabbitmqtest.Server) { s.Stop() }, want: "connection refused"},
		{
			name: "binding to no exchange", want: "create the exchanges it is bound to",
			cfg: rabbitmq.SubscriberConfig{Declare: true, Spec: rabbitmq.QueueSpec{Bindings: []rabbitmq.Binding{{Exchange: "none"}}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake(t, rabbitmqtest.Config{})
				if test.prep != nil {
					test.prep(s)
				}
				test.cfg.Processor = &answers{}
				b := subscribe(t, s, test.cfg)
				if test.then != nil {
					lapse(time.Second)
					test.then(s)
				}
				<-b.done
				if b.err == nil || !strings.Contains(b.err.Error(), test.want) || !strings.Contains(b.err.Error(),
					workQueue) {
					t.Errorf("Run = %v; want the queue, and %q", b.err, test.want)
				}
			})
		})
	}
}

func TestSubscriberConfig(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rabbitmq.SubscriberConfig)
		want   string
	}{
		"no Dial":  {func(c *rabbitmq.SubscriberConfig) { c.Dial = nil }, "SubscriberConfig.Dial is required"},
		"no Queue": {func(c *rabbitmq.SubscriberConfig) { c.Queue = "" }, "SubscriberConfig.Queue is required"},
		"long Queue": {
			func(c *rabbitmq.SubscriberConfig) { c.Queue = strings.Repeat("q", 250) },
			"SubscriberConfig.Queue has 250 bytes",
		},
		"no Processor": {
			func(c *rabbitmq.SubscriberConfig) { c.Processor = nil },
			"SubscriberConfig.Processor is required",
		},
		"Prefetch": {
			func(c *rabbitmq.SubscriberConfig) { c.Prefetch = 70000 },
			"SubscriberConfig.Prefetch is 70000",
		},
		"Grace": {
			func(c *rabbitmq.SubscriberConfig) { c.Grace = time.Hour },
			"SubscriberConfig.Grace is 1h0m0s, and the server takes messages away",
		},
		"Ordered": {
			func(c *rabbitmq.SubscriberConfig) { c.Ordered = true },
			"Ordered requires Spec.SingleActiveConsumer",
		},
		"Args": {
			func(c *rabbitmq.SubscriberConfig) { c.Spec.Args = amqp.Table{"x-queue-type": "quorum"} },
			"Spec.Args has x-queue-type; set its own field instead",
		},
		"limit of a classic queue": {
			func(c *rabbitmq.SubscriberConfig) { c.Spec.DeliveryLimit = 5 },
			"only quorum queues have one",
		},
		"limit without dead letters": {
			func(c *rabbitmq.SubscriberConfig) { c.Spec = rabbitmq.QueueSpec{Quorum: true, DeliveryLimit: 5} },
			"drops a message that was delivered more than 5 times",
		},
		"limit with dead letters": {func(c *rabbitmq.SubscriberConfig) {
			c.Spec = rabbitmq.QueueSpec{
				Quorum: true, DeliveryLimit: 5,
				DeadLetters: &rabbitmq.DeadLetters{Exchange: "dead"},
			}
		}, ""},
		"limit allowed": {func(c *rabbitmq.SubscriberConfig) {
			c.Spec, c.AcceptedRisks = rabbitmq.QueueSpec{Quorum: true, DeliveryLimit: 5},
				[]rabbitmq.Risk{rabbitmq.RiskDeliveryLimit}
		}, ""},
		"AcceptedRisks": {
			func(c *rabbitmq.SubscriberConfig) { c.AcceptedRisks = []rabbitmq.Risk{"all"} },
			`AcceptedRisks contains "all"`,
		},
		"short window": {func(c *rabbitmq.SubscriberConfig) {
			c.Processor, c.Spec.MessageTTL, c.Spec.DeadLetters = windowed{}, 2*time.Hour,
				&rabbitmq.DeadLetters{Exchange: "dead"}
		}, "keeps messages for up to 2h0m0s"},
		"a time to live without dead letters": {func(c *rabbitmq.SubscriberConfig) { c.Spec.MessageTTL = 2 * time.Hour }, "drops a message that was not received for 2h0m0s"},
		"a maximum of bytes without dead letters": {
			func(c *rabbitmq.SubscriberConfig) { c.Spec.Args = amqp.Table{"x-max-length-bytes": 1000} },
			"drops messages when it is full (x-max-length-bytes is 1000), also those that were received and go back to it; give it x-overflow reject-publish",
		},
		"a queue that expires": {
			func(c *rabbitmq.SubscriberConfig) { c.Spec.Args = amqp.Table{"x-expires": 1000} },
			"deletes queue q with its messages when it had no consumer for 1000 ms (x-expires); create a durable queue",
		},
		"a stream": {
			func(c *rabbitmq.SubscriberConfig) { c.Spec.Args = amqp.Table{"x-queue-type": "stream"} },
			"SubscriberConfig.Spec.Args: the queue is a stream",
		},
		"defaults": {func(*rabbitmq.SubscriberConfig) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := rabbitmq.SubscriberConfig{
				Dial: rabbitmqtest.NewServer(rabbitmqtest.Config{}).Dial, Queue: "q",
				Processor: &answers{},
			}
			test.change(&cfg)
			_, err := rabbitmq.NewSubscriber(cfg)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(),
				test.want)) {
				t.Errorf("NewSubscriber = %v, want %q", err, test.want)
			}
		})
	}
}

type windowed struct{}

func (windowed) Window() time.Duration { return time.Hour }

func (windowed) Process(context.Context, *consumer.Message) error { return nil }

func (windowed) ProcessBatch(context.Context, []*consumer.Message) []error { return nil }

// TestToMessage is about headers of every type, and stamps that no Subscriber has written.
func TestToMessage(t *testing.T) {
	raw := &amqp.Delivery{
		MessageId: "id", RoutingKey: "orders.new", ContentType: "text/plain", ReplyTo: "answers", Body: []byte("body"),
		Timestamp: time.Unix(1700000000, 0), Redelivered: true, Headers: amqp.Table{
			rabbitmq.HeaderKey: []byte("the key"), "nil": nil, "true": true, "byte": byte(7), "int8": int8(-7),
			"int64": int64(math.MinInt64),
			"float": 0.5, "nan": math.NaN(), "text": "\xff", "bytes": []byte{0, 1}, "reply-to": "header wins",
			"decimal": amqp.Decimal{Scale: 2, Value: -5},
			"time":    time.Unix(0, 0), "x-delivery-count": int64(3),
			"table": amqp.Table{"b": []any{int32(1), "x", []byte{0xff}, math.Inf(1), nil}, "a": amqp.Table{}},
		},
	}
	got := rabbitmq.ToMessage("q", raw)
	want := &consumer.Message{
		ID: "id", Topic: "orders.new", OrderingKey: "the key", Position: "q/id", Payload: []byte("body"),
		Time: time.Unix(1700000000, 0), Attempt: 4, Raw: raw,
		Headers: map[string]string{
			"content-type": "text/plain", "reply-to": "header wins", "nil": "", "true": "true", "byte": "7",
			"int8": "-7", "int64": "-9223372036854775808",
			"float": "0.5", "nan": "NaN", "text": "\xff", "bytes": "\x00\x01", "decimal": "-0.05",
			"time":  "1970-01-01T00:00:00Z",
			"table": `{"a":{},"b":[1,"x",{"base64":"/w=="},"+Inf",null]}`,
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, stamp := range []any{nil, "no table", amqp.Table{}, amqp.Table{"attempt": "x", "kept": int64(1), "position": []any{}}, amqp.Table{"attempt": int64(-5)}} {
		m := rabbitmq.ToMessage("q", &amqp.Delivery{RoutingKey: "k", Headers: amqp.Table{"x-txonce-retry": stamp}})
		if m.Attempt != 1 || len(m.Headers) != 0 {
			t.Errorf("with the stamp %v: Attempt %d, headers %v", stamp, m.Attempt, m.Headers)
		}
	}
	one, other := rabbitmq.ToMessage("q", &amqp.Delivery{}), rabbitmq.ToMessage("q", &amqp.Delivery{})
	if one.Position == other.Position || one.Topic != "q" || !one.Time.IsZero() {
		t.Errorf("two messages without properties are %+v and %+v", one, other)
	}
}

// TestAllowedIsSaid: Run logs each accepted risk that exists once, and no other risk.
func TestAllowedIsSaid(t *testing.T) {
	t.Parallel()
	accepted := []rabbitmq.Risk{rabbitmq.RiskDeliveryLimit, rabbitmq.RiskShortWindow}
	const limit, window = "accepted_risk=RiskDeliveryLimit", "accepted_risk=RiskShortWindow"
	for name, test := range map[string]struct {
		spec          rabbitmq.QueueSpec
		limit, window int
	}{
		"neither": {},
		"limit":   {spec: rabbitmq.QueueSpec{Quorum: true, DeliveryLimit: 5}, limit: 1},
		"window":  {spec: rabbitmq.QueueSpec{MessageTTL: 2 * time.Hour, DeadLetters: &rabbitmq.DeadLetters{Exchange: "dead", Key: "q"}}, window: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fake(t, rabbitmqtest.Config{})
				b := subscribe(t, s, rabbitmq.SubscriberConfig{
					Processor: windowed{}, Spec: test.spec,
					AcceptedRisks: accepted,
				})
				lapse(time.Second)
				s.Cut()
				lapse(time.Minute)
				if err := b.stop(); err != nil {
					t.Error(err)
				}
				if log := b.log.String(); strings.Count(log, limit) != test.limit ||
					strings.Count(log, window) != test.window {
					t.Errorf("want %d warnings of a limit and %d of a window:\n%s", test.limit, test.window, log)
				}
			})
		})
	}
}

// TestOrderedSaysWhatConsumerTimeoutCannot: in Ordered mode a slow message cannot go back alone, and Run says so at its
// start, by name.
func TestOrderedSaysWhatConsumerTimeoutCannot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cfg  rabbitmq.SubscriberConfig
		says bool
	}{
		"ordered": {rabbitmq.SubscriberConfig{
			Ordered: true, Spec: rabbitmq.QueueSpec{SingleActiveConsumer: true}, ConsumerTimeout: time.Hour,
		}, true},
		"ordered, no timeout told": {rabbitmq.SubscriberConfig{Ordered: true, Spec: rabbitmq.QueueSpec{SingleActiveConsumer: true}}, false},
		"not ordered":              {rabbitmq.SubscriberConfig{ConsumerTimeout: time.Hour}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := rabbitmqtest.NewServer(rabbitmqtest.Config{})
				cfg := test.cfg
				cfg.Processor, cfg.Declare = &answers{}, true
				b := subscribe(t, s, cfg)
				lapse(time.Second)
				says := strings.Contains(b.log.String(),
					"ConsumerTimeout cannot make a slow message go back alone, because of SubscriberConfig.Ordered")
				if err := b.stop(); err != nil || says != test.says {
					t.Errorf("Run = %v; it says what cannot be: %v, want %v\n%s", err, says, test.says, b.log.String())
				}
			})
		})
	}
}
