package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
	"github.com/txonce/txonce/internal/test/testlog"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// TestServerFaults is about faults and settings of a real server that would disturb other tests on the shared one.
func TestServerFaults(t *testing.T) {
	t.Parallel()
	own := testrabbitmq.Start(t, "max_message_size = 2097152")
	t.Run("large messages are refused", func(t *testing.T) { refusesLarge(t, own) })
	t.Run("a queue does not confirm", func(t *testing.T) { queueDoesNotConfirm(t, own) })
	t.Run("a memory alarm", func(t *testing.T) { memoryAlarm(t, own) })
	t.Run("a subscription is refused", func(t *testing.T) { subscriptionRefused(t, own) })
	t.Run("a subscription ends", func(t *testing.T) { subscriptionEnds(t, own) })
}

// refusesLarge runs the suite with a server whose size limit is below the Publisher's: the server closes channels.
func refusesLarge(t *testing.T, own *testrabbitmq.Own) {
	at := func(t *testing.T) *site { return realSite(t, own.URL) }
	outboxtest.TestPublisher(t, harness(at, nil, rabbitmq.PublisherConfig{}, 2<<20+1))
}

// queueDoesNotConfirm: a quorum queue whose leader confirms nothing, as without a majority, does not stop another
// queue. Few messages arrive twice.
func queueDoesNotConfirm(t *testing.T, own *testrabbitmq.Own) {
	quorum := amqp.Table{"x-queue-type": "quorum"}
	stuck, healthy := testrabbitmq.Queue(t, own.URL, quorum), testrabbitmq.Queue(t, own.URL, quorum)
	for _, queue := range []string{stuck, healthy} {
		send(t, dialer(own.URL), queue, amqp.Publishing{MessageId: "first"})
	}
	leader := func(do string) {
		own.Eval(t, fmt.Sprintf("ok = sys:%s(whereis('%%2F_%s'))", do, stuck))
	}
	leader("suspend")
	p := newPublisher(t, rabbitmq.PublisherConfig{Dial: dialer(own.URL)})
	const toHealthy, toStuck = 1000, 300
	open := map[string][]outbox.Message{}
	for i := range toHealthy {
		open[healthy] = append(open[healthy], outbox.Message{
			ID: fmt.Sprint("h", i), Topic: healthy,
			OrderingKey: fmt.Sprint("h", i),
		})
	}
	for i := range toStuck {
		open[stuck] = append(open[stuck], outbox.Message{ID: fmt.Sprint("s", i), Topic: stuck, OrderingKey: fmt.Sprint("s", i)})
	}
	// publish sends the open messages, in calls of 500 for both queues, and keeps those that are not confirmed.
	publish := func() {
		var batch []outbox.Message
		for i := range max(len(open[healthy]), len(open[stuck])) {
			for _, queue := range []string{healthy, stuck} {
				if i < len(open[queue]) && len(batch) < 500 {
					batch = append(batch, open[queue][i])
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		errs := p.Publish(ctx, batch)
		confirmed := map[string]bool{}
		for i, m := range batch {
			switch {
			case errs == nil || errs[i] == nil:
				confirmed[m.ID] = true
			case !errors.As(errs[i], new(*outbox.UnavailableError)):
				t.Fatalf("message %s: %v; want that the server is to blame", m.ID, errs[i])
			}
		}
		for queue, msgs := range open {
			var left []outbox.Message
			for _, m := range msgs {
				if !confirmed[m.ID] {
					left = append(left, m)
				}
			}
			open[queue] = left
		}
	}
	began := time.Now()
	for len(open[healthy]) > 0 {
		if publish(); time.Since(began) > 2*time.Minute {
			t.Fatalf("%d of %d messages of the healthy queue are not confirmed after two minutes", len(open[healthy]),
				toHealthy)
		}
	}
	t.Logf("the healthy queue took %v", time.Since(began))
	if len(open[stuck]) != toStuck {
		t.Errorf("%d messages were confirmed by a queue that stands still", toStuck-len(open[stuck]))
	}
	// From now on no message waits for the other queue.
	began = time.Now()
	for i := range 20 {
		open[healthy] = append(open[healthy], outbox.Message{ID: fmt.Sprint("later", i), Topic: healthy})
		publish()
	}
	for i := 0; len(open[healthy]) > 0 && i < 10; i++ {
		publish()
	}
	took := time.Since(began)
	t.Logf("20 later calls took %v", took)
	if len(open[healthy]) > 0 || took > 90*time.Second { // 20 times 5 s where each call waits for the other queue
		t.Errorf("%d later messages of the healthy queue are not confirmed after %v", len(open[healthy]), took)
	}
	leader("resume")
	t.Logf("resumed after %v", time.Since(began))
	began = time.Now()
	for ; len(open[stuck]) > 0; lapse(50 * time.Millisecond) {
		if publish(); time.Since(began) > 2*time.Minute {
			t.Fatalf("%d messages of the queue that goes on are not confirmed", len(open[stuck]))
		}
	}
	t.Logf("the other one took %v to be empty", time.Since(began))
	at := &site{own: dialer(own.URL)}
	copies := 0
	for queue, want := range map[string]int{healthy: toHealthy + 20, stuck: toStuck} {
		seen := map[string]int{}
		for _, m := range at.read(t, queue, want+1) {
			seen[m.Headers[outbox.HeaderID]]++ // says the message-id
		}
		if len(seen) != want+1 { // and the first one
			t.Errorf("%s has %d messages; want %d", queue, len(seen), want+1)
		}
		n := 0
		for _, times := range seen {
			n += times - 1
		}
		t.Logf("%s: %d copies", queue, n)
		copies += n
	}
	if most := (toHealthy + toStuck) / 2; copies > most {
		t.Errorf("%d copies of %d messages; want %d at the most", copies, toHealthy+toStuck, most)
	}
}

// memoryAlarm: a server that is short of memory stops reading in the middle of a message. Run and Close return all the
// same, and nothing is lost.
func memoryAlarm(t *testing.T, own *testrabbitmq.Own) {
	const grace, messages, size = 2 * time.Second, 40, 512 << 10 // in all more than sockets hold
	queue := testrabbitmq.Queue(t, own.URL, nil)
	t.Cleanup(func() { deleteRetryQueues(t, own.URL, queue) })
	onChannel(t, dialer(own.URL), func(ch rabbitmq.Channel) error { return rabbitmq.DeclareRetryQueues(ch, queue, time.Second) })
	var msgs []amqp.Publishing
	for i := range messages {
		msgs = append(msgs, amqp.Publishing{MessageId: fmt.Sprint(i), Body: make([]byte, size)})
	}
	send(t, dialer(own.URL), queue, msgs...)
	own.Eval(t, "vm_memory_monitor:set_vm_memory_high_watermark(0)")
	alarm := true
	calm := func() {
		if alarm {
			own.Eval(t, "vm_memory_monitor:set_vm_memory_high_watermark(0.8)")
			alarm = false
		}
	}
	t.Cleanup(calm)

	log := &testlog.Log{}
	p := &answers{say: func(context.Context, *consumer.Message) error {
		return &consumer.RetryError{Err: errors.New("not yet"), After: time.Second}
	}}
	cfg := rabbitmq.SubscriberConfig{
		Dial: dialer(own.URL), Queue: queue, Processor: p, Grace: grace, Concurrency: 1, MaxBatch: 1,
		Logger: log.Logger(),
	}
	s, err := rabbitmq.NewSubscriberWithOldRetryQueues(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	eventually := func(what string, there func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !there(); lapse(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain until %s; the log:\n%s", what, log)
			}
		}
	}
	eventually("the server takes nothing in, and all is handled once", func() bool {
		return strings.Contains(log.String(), "takes no messages") && len(p.all()) >= messages
	})
	stopped := time.Now()
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Run = %v", err)
		}
		t.Logf("Run took %v to return", time.Since(stopped))
	case <-time.After(grace + 45*time.Second): // 15 s, and what a busy machine takes
		t.Errorf("Run has not returned %v after ctx ended; Grace is %v", time.Since(stopped), grace)
	}

	blockedConnectionCloses(t, own.URL)
	publisher := newPublisher(t, rabbitmq.PublisherConfig{Dial: dialer(own.URL)})
	var large []outbox.Message
	for i := range messages {
		large = append(large, outbox.Message{ID: fmt.Sprint("p", i), Topic: queue, Payload: make([]byte, size)})
	}
	publishing, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for i, err := range publisher.Publish(publishing, large) {
		if !errors.As(err, new(*outbox.UnavailableError)) {
			t.Fatalf("message %d: %v; want that the server takes nothing in", i, err)
		}
	}
	closing := time.Now()
	if err := publisher.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(closing); took > 30*time.Second {
		t.Errorf("Close took %v", took)
	}

	calm()
	done := &answers{}
	cfg.Processor, cfg.Logger = done, testlog.New(t).Logger()
	if s, err = rabbitmq.NewSubscriberWithOldRetryQueues(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop = context.WithCancel(t.Context())
	defer stop()
	go func() { ended <- s.Run(ctx) }()
	eventually("every message is handled", func() bool {
		handled := map[string]bool{}
		for _, m := range done.all() {
			handled[m.ID] = true
		}
		for _, m := range msgs {
			if !handled[m.MessageId] {
				return false
			}
		}
		return true
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// writes counts the bytes written to a connection.
type writes struct {
	net.Conn
	n atomic.Int32
}

func (w *writes) Write(b []byte) (int, error) {
	defer w.n.Add(1)
	return w.Conn.Write(b)
}

// blockedConnectionCloses: CloseDeadline ends a connection that the server has stopped reading from, also where another
// call waits for the server's answer already.
func blockedConnectionCloses(t *testing.T, url string) {
	var socket *writes
	conn, err := rabbitmq.Dial(url, amqp.Config{Heartbeat: time.Minute, Dial: func(network, addr string) (net.Conn, error) {
		c, err := net.Dial(network, addr)
		socket = &writes{Conn: c}
		return socket, err
	}})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	blocks := conn.NotifyBlocked(make(chan amqp.Blocking, 1))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.PublishWithDeferredConfirm("", "nowhere", false, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-blocks:
	case <-time.After(2 * time.Minute):
		t.Fatal("the server does not block")
	}
	before := socket.n.Load()
	closed := make(chan error, 1)
	go func() { closed <- conn.CloseDeadline(time.Now().Add(time.Hour)) }()
	for end := time.Now().Add(time.Minute); socket.n.Load() == before && time.Now().Before(end); {
		lapse(10 * time.Millisecond)
	}
	_ = conn.CloseDeadline(time.Now())
	select {
	case <-closed:
	case <-time.After(45 * time.Second):
		t.Error("a blocked connection has not closed 45 s after its deadline")
	}
}
