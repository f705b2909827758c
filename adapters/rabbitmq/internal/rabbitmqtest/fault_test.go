package rabbitmqtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
)

// faulty runs do with a Server whose faults are asked for. All that it started must have ended afterwards.
func faulty(t *testing.T, cfg rabbitmqtest.Config, do func(w *world, s *rabbitmqtest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := rabbitmqtest.NewServer(cfg)
		do(&world{T: t, dial: s.Dial, prefix: "fake"}, s)
	})
}

func byBody(fates map[string]rabbitmqtest.Fate) func(rabbitmqtest.Publish) rabbitmqtest.Fate {
	return func(p rabbitmqtest.Publish) rabbitmqtest.Fate { return fates[string(p.Message.Body)] }
}

func TestFates(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		q, p := w.queue(nil), w.publisher()
		s.OnPublish(byBody(map[string]rabbitmqtest.Fate{"nack": rabbitmqtest.Nack, "both": rabbitmqtest.NackButTake, "late": rabbitmqtest.Withhold}))
		if got := p.send(q, "nack", "both", "fine"); got[0] || got[1] || !got[2] {
			t.Errorf("confirmed: %v", got)
		}
		late, behind := p.put("", q, amqp.Publishing{Body: []byte("late")}),
			p.put("", q, amqp.Publishing{Body: []byte("behind")})
		if !w.acked(behind) {
			t.Error("a confirm that is withheld holds up another")
		}
		silent(w, late.Done())
		s.Release()
		if !w.acked(late) {
			t.Error("not confirmed")
		}
		w.want("taken", bodies(s.Messages(q)), []string{"both", "fine", "late", "behind"})

		for fate, taken := range map[rabbitmqtest.Fate]int{rabbitmqtest.CutAfter: 5, rabbitmqtest.CutBefore: 5} {
			p := w.publisher()
			closed := p.NotifyClose(make(chan *amqp.Error, 1))
			s.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate { return fate })
			before, _ := s.Queue(q)
			c := p.put("", q, amqp.Publishing{Body: []byte("cut")})
			w.refused("cut", amqp.FrameError, within(w, closed))
			if w.acked(c) {
				t.Error("confirmed")
			}
			after, _ := s.Queue(q)
			if took := after.Ready - before.Ready; (took == 1) != (fate == rabbitmqtest.CutAfter) {
				t.Errorf("fate %v: %d taken (%d)", fate, took, taken)
			}
		}
		other := w.publisher()
		closed := other.NotifyClose(make(chan *amqp.Error, 1))
		s.OnPublish(func(rabbitmqtest.Publish) rabbitmqtest.Fate { return rabbitmqtest.Refuse })
		other.put("amq.topic", "k", amqp.Publishing{})
		w.refused("refused", amqp.AccessRefused, within(w, closed))
	})
}

func TestStopAndStart(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		classic, counts := w.queue(nil), w.queue(quorum)
		w.must(w.channel().ExchangeDeclare("gone", "direct", false, false, false, false, nil))
		_, err := w.channel().QueueDeclare("gone", false, false, false, false, nil)
		w.must(err)
		p := w.publisher()
		for _, q := range []string{classic, counts} {
			p.sendAs("", q, amqp.Publishing{Body: []byte("persistent"), DeliveryMode: amqp.Persistent})
			p.sendAs("", q, amqp.Publishing{Body: []byte("transient"), DeliveryMode: amqp.Transient})
		}
		ds := w.consume(w.channel(), classic, 1)
		within(w, ds)
		closed := p.NotifyClose(make(chan *amqp.Error, 1))
		s.Stop()
		w.refused("stopped", amqp.ConnectionForced, within(w, closed))
		ends(w, ds)
		if _, err := s.Dial(w.Context()); err == nil {
			t.Error("a stopped server was dialled")
		}
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
		s.Start()
		w.want("classic", bodies(w.drain(classic, 1)), []string{"persistent"})
		w.want("quorum", bodies(w.drain(counts, 2)), []string{"persistent", "transient"})
		_, err = w.channel().QueueDeclarePassive("gone", false, false, false, false, nil)
		w.refused("queue", amqp.NotFound, err)
		w.refused("exchange", amqp.NotFound, w.channel().ExchangeDeclarePassive("gone", "direct", false, false, false,
			false, nil))
	})
}

func TestPause(t *testing.T) {
	faulty(t, rabbitmqtest.Config{Heartbeat: 10 * time.Second}, func(w *world, s *rabbitmqtest.Server) {
		q, p := w.queue(nil), w.publisher()
		ds := w.consume(w.channel(), q, 0)
		resume := s.Pause()
		held := p.put("", q, amqp.Publishing{Body: []byte("held")})
		silent(w, held.Done())
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := s.Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Dial: %v", err)
		}
		resume()
		if !w.acked(held) {
			t.Error("not confirmed")
		}
		within(w, ds)

		// For longer than the client waits: it gives up, and the server reads what was sent nevertheless.
		closed := p.NotifyClose(make(chan *amqp.Error, 1))
		resume = s.Pause()
		late := p.put("", q, amqp.Publishing{Body: []byte("late")})
		blocked := make(chan error, 1)
		go func() { // fills the socket
			for {
				if _, err := p.PublishWithDeferredConfirm("", q, true, false,
					amqp.Publishing{Body: make([]byte, 1<<20)}); err != nil {
					blocked <- err
					return
				}
			}
		}()
		pause(w.Context(), 29*time.Second)
		silent(w, blocked)
		w.refused("after 30 seconds", amqp.FrameError, within(w, closed))
		w.refused("the write that did not end", amqp.ChannelError, within(w, blocked))
		if w.acked(late) {
			t.Error("confirmed")
		}
		ends(w, ds) // its connection as well
		if got := s.Messages(q); len(got) > 1 {
			t.Errorf("%d messages during the pause", len(got))
		}
		resume()
		found := false
		for _, m := range s.Messages(q) {
			found = found || string(m.Body) == "late"
		}
		if !found {
			t.Error("what was sent before the end of the connection was not read")
		}
	})
}

func TestPauseAndCloseDeadline(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		c := w.conn()
		resume := s.Pause()
		began := time.Now()
		_ = c.CloseDeadline(time.Now().Add(time.Second))
		if took := time.Since(began); took != time.Second || !c.IsClosed() {
			t.Errorf("closed after %v: %v", took, c.IsClosed())
		}
		if n := s.Connections(); n != 1 {
			t.Errorf("the server, which reads nothing, has %d connections", n)
		}
		resume()
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections", n)
		}
	})
}

func TestBlock(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		q := w.queue(nil)
		c := w.conn()
		ch, err := c.Channel()
		w.must(err)
		blocks := c.NotifyBlocked(make(chan amqp.Blocking, 2))
		s.Block("low on disk")
		ds := w.consume(w.channel(), q, 1)
		silent(w, blocks) // until it publishes
		_, err = ch.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{})
		w.must(err)
		if b := within(w, blocks); !b.Active || b.Reason != "low on disk" {
			t.Errorf("told %+v", b)
		}
		silent(w, ds)
		s.Unblock()
		if b := within(w, blocks); b.Active {
			t.Errorf("told %+v", b)
		}
		w.must(within(w, ds).Ack(false))
	})
}

func TestDeny(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		q := w.queue(nil)
		s.Deny(func(a rabbitmqtest.Access) bool { return a.Operation != "configure" || a.Name == "mine" })
		_, err := w.channel().ConsumeWithContext(w.Context(), q, "", false, false, false, false, nil)
		w.refused("read", amqp.AccessRefused, err)
		_, err = w.channel().QueueDeclare("mine", true, false, false, false, nil)
		w.refused("configure", amqp.AccessRefused, err)
		p := w.publisher()
		closed := p.NotifyClose(make(chan *amqp.Error, 1))
		p.put("", q, amqp.Publishing{})
		w.refused("write", amqp.AccessRefused, within(w, closed))
	})
}

func TestConsumerTimeout(t *testing.T) {
	faulty(t, rabbitmqtest.Config{ConsumerTimeout: time.Minute}, func(w *world, s *rabbitmqtest.Server) {
		q := w.queue(nil)
		w.publisher().send(q, "1", "2")
		ch := w.channel()
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		ds := w.consume(ch, q, 2)
		first := within(w, ds)
		within(w, ds)
		pause(w.Context(), 50*time.Second)
		w.must(first.Ack(false))
		pause(w.Context(), 5*time.Second)
		silent(w, closed)
		err := within(w, closed)
		w.refused("late", amqp.PreconditionFailed, err)
		if !strings.Contains(err.Reason, "60000 ms") {
			t.Error(err)
		}
		w.want("back", bodies(w.drain(q, 1)), []string{"2"})
	})
}

// TestLostNotification is what amqp091-go does as well: 5 seconds, and it is gone.
func TestLostNotification(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		p := &publisher{w, w.channel(), make(chan amqp.Return)} // no room
		w.must(p.Confirm(false))
		p.NotifyReturn(p.returns)
		for _, id := range []string{"first", "second"} {
			p.put("", "nowhere", amqp.Publishing{MessageId: id})
		}
		pause(w.Context(), 7*time.Second)
		if back := within(w, p.returns); back.MessageId != "second" {
			t.Errorf("%s came back; it should be lost by now", back.MessageId)
		}
	})
}

func TestDefaultDeliveryLimit(t *testing.T) {
	faulty(t, rabbitmqtest.Config{DeliveryLimit: 1}, func(w *world, s *rabbitmqtest.Server) {
		q := w.queue(quorum)
		w.publisher().send(q, "m")
		ds := w.consume(w.channel(), q, 1)
		for range 2 {
			w.must(within(w, ds).Nack(false, true))
		}
		silent(w, ds)
		if state, _ := s.Queue(q); state.Ready+state.Unacked != 0 {
			t.Errorf("%+v", state)
		}
	})
}

func TestUnknownIsRefused(t *testing.T) {
	faulty(t, rabbitmqtest.Config{}, func(w *world, s *rabbitmqtest.Server) {
		_, err := w.channel().QueueDeclare("q", true, false, false, false, amqp.Table{"x-max-priority": 5})
		w.refused("priorities", amqp.NotImplemented, err)
		w.refused("headers", amqp.CommandInvalid, w.channel().ExchangeDeclare("e", "headers", true, false, false,
			false, nil))
	})
}
