package rabbitmqtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Qos implements rabbitmq.Channel.
func (ch *channel) Qos(prefetchCount, prefetchSize int, global bool) error {
	if prefetchCount < 0 || prefetchSize < 0 {
		return fmt.Errorf("amqp: Qos values must be non-negative (got prefetchCount=%d, prefetchSize=%d)",
			prefetchCount, prefetchSize)
	}
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		switch {
		case prefetchSize != 0:
			return none, refuse(amqp.NotImplemented, "NOT_IMPLEMENTED - prefetch_size!=0 (%d)", prefetchSize)
		case global:
			ch.shared = prefetchCount
		default:
			ch.prefetch = prefetchCount
		}
		return none, nil
	})
	return err
}

// ConsumeWithContext implements rabbitmq.Channel.
func (ch *channel) ConsumeWithContext(
	ctx context.Context, name, tag string, autoAck, exclusive, _, noWait bool, args amqp.Table,
) (<-chan amqp.Delivery, error) {
	if err := args.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ch.c.s.mu.Lock()
	if tag == "" {
		tag = ch.c.s.name("ctag-")
	}
	ch.c.s.mu.Unlock()
	b := newBuffer()
	ch.notify.Lock()
	if ch.over {
		ch.notify.Unlock()
		b.drop()
		return nil, amqp.ErrClosed
	}
	ch.buffers[tag] = b
	ch.notify.Unlock()
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		return none, ch.consume(&consumer{
			ch: ch, tag: tag, autoAck: autoAck, exclusive: exclusive,
			prefetch: ch.prefetch,
		}, name, args)
	})
	if err != nil {
		ch.unbuffer(tag)
		return nil, err
	}
	if ctx.Done() != nil {
		go func() {
			select {
			case <-ch.ended:
			case <-ctx.Done():
				_ = ch.Cancel(tag, false)
			}
		}()
	}
	return b.out, nil
}

func (ch *channel) consume(con *consumer, name string, args amqp.Table) *amqp.Error {
	s := ch.c.s
	q, err := s.queue(name, ch.c)
	if err != nil {
		return err
	}
	if err := s.permit("read", "queue", name); err != nil {
		return err
	}
	if len(args) > 0 {
		return refuse(amqp.NotImplemented, "NOT_IMPLEMENTED - rabbitmqtest: consumer arguments %v", args)
	}
	if ch.consumers[con.tag] != nil {
		return refuse(amqp.NotAllowed, "NOT_ALLOWED - attempt to reuse consumer tag '%s'", con.tag)
	}
	if con.exclusive && len(q.consumers) > 0 || len(q.consumers) > 0 && q.consumers[0].exclusive {
		return refuse(amqp.AccessRefused, "ACCESS_REFUSED - queue '%s' in vhost '/' in exclusive use", name)
	}
	if q.quorum && ch.shared > 0 {
		return refuse(amqp.NotImplemented, "NOT_IMPLEMENTED - queue '%s' in vhost '/' does not support global qos", name)
	}
	con.q = q
	ch.consumers[con.tag] = con
	q.consumers = append(q.consumers, con)
	q.used()
	q.serve()
	return nil
}

// Cancel implements rabbitmq.Channel.
func (ch *channel) Cancel(tag string, _ bool) error {
	_, err := call(ch, func() (none struct{}, _ *amqp.Error) {
		if con := ch.consumers[tag]; con != nil {
			delete(ch.consumers, tag)
			con.q.dismiss(con)
		}
		return none, nil
	})
	if err != nil {
		return err
	}
	ch.unbuffer(tag)
	return nil
}

// unbuffer lets the client receive the buffered deliveries, and then closes its channel of deliveries.
func (ch *channel) unbuffer(tag string) {
	ch.notify.Lock()
	defer ch.notify.Unlock()
	if b := ch.buffers[tag]; b != nil {
		delete(ch.buffers, tag)
		b.finish(ch.ended)
	}
}

// cancelled notifies the client that its consumer was cancelled.
func (ch *channel) cancelled(tag string) {
	ch.c.push(func() {
		ch.notify.Lock()
		cancels := ch.cancels
		ch.notify.Unlock()
		notifyAll(cancels, tag)
		ch.unbuffer(tag)
	})
}

// deliver hands m to con.
func (ch *channel) deliver(con *consumer, m *message) {
	ch.tag++
	d := m.delivery(ch, con.tag, ch.tag)
	if !con.autoAck {
		con.holds++
		con.q.unacked++
		ch.unacked = append(ch.unacked, &delivered{tag: ch.tag, q: con.q, m: m, by: con, since: time.Now()})
		ch.watch()
	}
	ch.c.push(func() {
		ch.notify.Lock()
		defer ch.notify.Unlock()
		if b := ch.buffers[con.tag]; b != nil {
			b.add(d)
		}
	})
}

// full reports whether the consumers together have used up the channel's prefetch.
func (ch *channel) full() bool { return ch.shared > 0 && len(ch.unacked) >= ch.shared }

// watch closes the channel when its oldest delivery is not settled in time.
func (ch *channel) watch() {
	if len(ch.unacked) == 0 {
		return
	}
	left := time.Until(ch.unacked[0].since.Add(ch.c.s.cfg.ConsumerTimeout))
	if ch.overdue == nil {
		ch.overdue = time.AfterFunc(left, ch.checkOverdue)
	}
}

func (ch *channel) checkOverdue() {
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.gone {
		return
	}
	ch.overdue = nil
	if len(ch.unacked) > 0 && time.Since(ch.unacked[0].since) >= s.cfg.ConsumerTimeout {
		ch.fail(refuse(amqp.PreconditionFailed,
			"PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more",
			s.cfg.ConsumerTimeout.Milliseconds()))
		return
	}
	ch.watch()
}

// Ack implements rabbitmq.Channel and amqp.Acknowledger.
func (ch *channel) Ack(tag uint64, multiple bool) error {
	return ch.settle(tag, multiple, func(*delivered) {})
}

// Nack implements rabbitmq.Channel and amqp.Acknowledger.
func (ch *channel) Nack(tag uint64, multiple, requeue bool) error {
	return ch.settle(tag, multiple, func(d *delivered) {
		if requeue {
			d.q.giveBack(d.m, true)
			return
		}
		d.q.bury(d.m, "rejected")
	})
}

// Reject implements amqp.Acknowledger.
func (ch *channel) Reject(tag uint64, requeue bool) error { return ch.Nack(tag, false, requeue) }

func (ch *channel) settle(tag uint64, multiple bool, each func(*delivered)) error {
	return ch.cast(32, func() *amqp.Error {
		settled, err := ch.take(tag, multiple)
		if err != nil {
			return err
		}
		touched := []*queue{}
		for _, d := range settled {
			d.by.holds--
			d.q.unacked--
			each(d)
			if !slices.Contains(touched, d.q) {
				touched = append(touched, d.q)
			}
		}
		if ch.shared > 0 { // each of its queues may have waited for room
			for _, con := range ch.consumers {
				touched = append(touched, con.q)
			}
		}
		for _, q := range touched {
			q.serve()
		}
		return nil
	})
}

// take removes the delivery with tag, or all deliveries up to tag.
func (ch *channel) take(tag uint64, multiple bool) ([]*delivered, *amqp.Error) {
	if multiple && tag == 0 {
		all := ch.unacked
		ch.unacked = nil
		return all, nil
	}
	at, found := slices.BinarySearchFunc(ch.unacked, tag,
		func(d *delivered, tag uint64) int { return int(int64(d.tag) - int64(tag)) })
	switch {
	case !found: // even if there are earlier ones
		return nil, refuse(amqp.PreconditionFailed, "PRECONDITION_FAILED - unknown delivery tag %d", tag)
	case multiple:
		all := slices.Clone(ch.unacked[:at+1])
		ch.unacked = slices.Delete(ch.unacked, 0, at+1)
		return all, nil
	}
	one := ch.unacked[at]
	ch.unacked = slices.Delete(ch.unacked, at, at+1)
	return []*delivered{one}, nil
}
