package relay_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A session may stop its scan when it has found half a batch. So after such a batch there may be more messages.
func TestRelayPollsAgainAfterHalfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), slow(100*time.Millisecond)
		var msgs []outbox.Message
		for i := range 2000 {
			msgs = append(msgs, outbox.Message{ID: strconv.Itoa(i), Topic: "orders"})
		}
		enqueue(t, memory, msgs...)
		began := time.Now()
		_, stop := start(t, relay.Config{
			Queue: halving{memory}, Publisher: broker, BatchSize: 100, Workers: 4,
			PollMin: time.Hour,
		})
		for stats(t, memory) != "0 pending, 0 parked, 0 waiting" && time.Since(began) < time.Hour {
			<-time.After(10 * time.Millisecond)
		}
		if took := time.Since(began); took > 2*time.Second { // 40 batches of 0.1 s by 4 workers: 1 s
			t.Errorf("2000 messages took %v, as if not all workers had worked", took)
		}
		stop()
	})
}

// halving is a Queue whose sessions lease half of Want.Limit.
type halving struct{ driver.Queue }

func (q halving) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	return halvingSession{s}, err
}

type halvingSession struct{ driver.Session }

func (s halvingSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	want.Limit = (want.Limit + 1) / 2
	return s.Session.Lease(ctx, want)
}

// A wake-up comes in the middle of a round through the groups, about a group that was scanned before.
func TestRelayRemembersAWakeUpDuringARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		broker := &outboxtest.FakePublisher{Decide: func(m outbox.Message) (f outboxtest.Fate) {
			if m.OrderingKey == "a" {
				f.Delay = time.Minute // its shard stays leased
			}
			return f
		}}
		first, n := msg("a1"), 0
		enqueue(t, memory, first)
		queue := &midRound{Queue: memory, then: func() {
			for i := range 100 {
				m := outbox.Message{ID: strconv.Itoa(i), Topic: "orders"}
				if driver.Shard(&m, outboxtest.DefaultShards) != driver.Shard(&first, outboxtest.DefaultShards) {
					enqueue(t, memory, m)
					n++
				}
			}
		}}
		_, stop := start(t, relay.Config{
			Queue: queue, Publisher: broker, BatchSize: 200, BatchBytes: 4, Workers: 4,
			PollMin: time.Hour,
		})
		if got := len(arrived(broker)); got != n || n < 90 {
			t.Errorf("%d of %d published at once", got, n)
		}
		stop()
	})
}

// midRound calls then once, after a scan of one of several groups that has found nothing.
type midRound struct {
	driver.Queue
	then func()
}

func (q *midRound) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	s, err := q.Queue.Open(ctx, opts)
	return &midRoundSession{s, s.(driver.Waker), q}, err
}

type midRoundSession struct {
	driver.Session
	driver.Waker
	q *midRound
}

func (s *midRoundSession) Lease(ctx context.Context, want driver.Want) ([]driver.Leased, error) {
	want.Bytes = 0 // of Config it is small, so that a batch counts as full
	msgs, err := s.Session.Lease(ctx, want)
	if then := s.q.then; then != nil && want.Groups > 1 && len(msgs) == 0 {
		s.q.then = nil
		then()
	}
	return msgs, err
}
