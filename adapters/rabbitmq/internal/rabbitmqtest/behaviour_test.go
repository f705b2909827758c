package rabbitmqtest_test

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

func throughDefault(w *world) {
	q, p := w.queue(nil), w.publisher()
	sent := amqp.Publishing{
		Headers:      amqp.Table{"text": "ü", "bytes": []byte{0, 255}, "int": 7, "table": amqp.Table{"a": "b"}},
		ContentType:  "text/plain",
		DeliveryMode: 2, MessageId: "id", Type: "t", AppId: "app", CorrelationId: "c", Body: []byte("body"),
	}
	if !p.sendAs("", q, sent) {
		w.Error("not confirmed")
	}
	d := w.drain(q, 1)[0]
	if d.Exchange != "" || d.RoutingKey != q || d.Redelivered || d.DeliveryTag != 1 || d.MessageId != "id" ||
		string(d.Body) != "body" {
		w.Errorf("got %+v", d)
	}
	if got := fmt.Sprintf("%T %T %T %T", d.Headers["text"], d.Headers["bytes"], d.Headers["int"],
		d.Headers["table"]); got != "string []uint8 int32 amqp091.Table" {
		w.Errorf("headers have types %s", got)
	}
	if n := len(d.Headers); n != 4 {
		w.Errorf("headers are %v", d.Headers)
	}
}

func returnedFirst(w *world) {
	p := w.publisher()
	nowhere := w.name("nowhere")
	acked := p.sendAs("", nowhere, amqp.Publishing{MessageId: "lost", Body: []byte("x")})
	select {
	case r := <-p.returns:
		if !acked || r.ReplyCode != amqp.NoRoute || r.MessageId != "lost" || r.RoutingKey != nowhere ||
			r.Exchange != "" {
			w.Errorf("confirmed: %v, return %+v", acked, r)
		}
	default:
		w.Error("the confirm came before the return")
	}
	c, err := p.PublishWithDeferredConfirm("", nowhere, false, false, amqp.Publishing{}) // the result is not received
	w.must(err)
	if !w.acked(c) {
		w.Error("not confirmed")
	}
	silent(w, p.returns)
}

func prefetchBounds(w *world) {
	q, p := w.queue(nil), w.publisher()
	p.send(q, "1", "2", "3", "4")
	ds := w.consume(w.channel(), q, 2)
	one, two := within(w, ds), within(w, ds)
	silent(w, ds)
	w.must(two.Ack(false))
	three := within(w, ds)
	silent(w, ds)
	w.want("delivered", bodies([]amqp.Delivery{one, two, three}), []string{"1", "2", "3"})
	w.must(three.Ack(true)) // one as well
	four := within(w, ds)
	w.must(four.Ack(false))
	w.ready(q, 0)
}

// backAtItsPlace gives both messages back when there is no consumer any more: a consumer might get the third message
// between the two nacks.
func backAtItsPlace(w *world) {
	q, p := w.queue(nil), w.publisher()
	p.send(q, "1", "2", "3")
	ch := w.channel()
	w.must(ch.Qos(2, 0, false))
	ds, err := ch.ConsumeWithContext(w.Context(), q, "tag", false, false, false, false, nil)
	w.must(err)
	one, two := within(w, ds), within(w, ds)
	w.must(ch.Cancel("tag", false))
	w.must(two.Nack(false, true))
	w.must(one.Nack(false, true))
	w.ready(q, 3)
	got := w.drain(q, 3)
	w.want("after it", bodies(got), []string{"1", "2", "3"})
	for i, d := range got {
		if d.Redelivered != (i < 2) {
			w.Errorf("%q: redelivered is %v", d.Body, d.Redelivered)
		}
	}
}

func lostConnection(w *world) {
	q, p := w.queue(nil), w.publisher()
	p.send(q, "1", "2", "3", "4")
	c := w.conn()
	ch, err := c.Channel()
	w.must(err)
	ds := w.consume(ch, q, 3)
	for range 3 {
		within(w, ds)
	}
	w.must(c.Close())
	ends(w, ds)
	if !ch.IsClosed() || !c.IsClosed() {
		w.Error("it is not closed")
	}
	w.ready(q, 4)
	got := w.drain(q, 4)
	w.want("after it", bodies(got), []string{"1", "2", "3", "4"})
	for i, d := range got {
		if d.Redelivered != (i < 3) {
			w.Errorf("%q: redelivered is %v", d.Body, d.Redelivered)
		}
	}
	w.refused("Ack of a closed channel", amqp.ChannelError, ch.Ack(1, false))
}

func unknownTag(w *world) {
	q, p := w.queue(nil), w.publisher()
	p.send(q, "1", "2")
	for name, settle := range map[string]func(d amqp.Delivery) error{
		"ack twice":  func(d amqp.Delivery) error { return d.Ack(false) },
		"nack twice": func(d amqp.Delivery) error { return d.Nack(false, true) },
		"reject":     func(d amqp.Delivery) error { return d.Reject(true) },
		"of another": func(d amqp.Delivery) error { d.DeliveryTag = 77; return d.Ack(false) },
		"multiple":   func(d amqp.Delivery) error { d.DeliveryTag = 77; return d.Ack(true) },
	} {
		ch := w.channel()
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		cancelled := ch.NotifyCancel(make(chan string, 1))
		ds := w.consume(ch, q, 1)
		d := within(w, ds)
		w.must(d.Nack(false, true))
		w.must(settle(d)) // the error comes later
		w.refused(name, amqp.PreconditionFailed, within(w, closed))
		ends(w, closed)
		ends(w, ds)
		if c := ends(w, cancelled); len(c) > 0 {
			w.Errorf("cancelled %v", c)
		}
		w.refused(name+", then anything", amqp.ChannelError, d.Ack(false))
	}
	w.want("left", bodies(w.drain(q, 2)), []string{"1", "2"})
}

func missingExchange(w *world) {
	q, p := w.queue(nil), w.publisher()
	closed := p.NotifyClose(make(chan *amqp.Error, 1))
	p.send(q, "before")
	c := p.put(w.name("no-exchange"), "k", amqp.Publishing{})
	w.refused("publish", amqp.NotFound, within(w, closed))
	if w.acked(c) || !p.IsClosed() {
		w.Errorf("confirmed, or the channel is open when the confirm ends: %v", p.IsClosed())
	}
	ends(w, p.returns)
	_, err := p.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{})
	w.refused("publish again", amqp.ChannelError, err)
	w.want("left", bodies(w.drain(q, 1)), []string{"before"})
}

func missing(w *world) {
	ch := w.channel()
	_, err := ch.QueueDeclarePassive(w.name("no-queue"), true, false, false, false, nil)
	w.refused("queue", amqp.NotFound, err)
	_, err = ch.QueueDeclare(w.name("queue"), true, false, false, false, nil)
	w.refused("the channel afterwards", amqp.ChannelError, err)
	_, err = w.channel().ConsumeWithContext(w.Context(), w.name("no-queue"), "", false, false, false, false, nil)
	w.refused("consume", amqp.NotFound, err)
	w.refused("exchange", amqp.NotFound, w.channel().ExchangeDeclarePassive(w.name("no-exchange"), "direct", true,
		false, false, false, nil))
	w.refused("bind to no exchange", amqp.NotFound, w.channel().QueueBind(w.queue(nil), "k", w.name("no-exchange"),
		false, nil))
	w.refused("bind no queue", amqp.NotFound, w.channel().QueueBind(w.name("no-queue"), "k", "amq.direct", false, nil))
}

func inequivalent(w *world) {
	q := w.queue(amqp.Table{"x-message-ttl": 60000})
	declare := func(durable bool, args amqp.Table) error {
		_, err := w.channel().QueueDeclare(q, durable, false, false, false, args)
		return err
	}
	w.must(declare(true, amqp.Table{"x-message-ttl": int64(60000)}))
	w.refused("other ttl", amqp.PreconditionFailed, declare(true, amqp.Table{"x-message-ttl": 1}))
	w.refused("no ttl", amqp.PreconditionFailed, declare(true, nil))
	w.refused("not durable", amqp.PreconditionFailed, declare(false, amqp.Table{"x-message-ttl": 60000}))
	w.refused("quorum", amqp.PreconditionFailed, declare(true,
		amqp.Table{"x-message-ttl": 60000, "x-queue-type": "quorum"}))
	w.refused("another dead letter exchange", amqp.PreconditionFailed,
		declare(true, amqp.Table{"x-message-ttl": 60000, "x-dead-letter-exchange": "x"}))
	if _, err := w.channel().QueueDeclarePassive(q, false, true, false, false,
		amqp.Table{"x-message-ttl": 5}); err != nil {
		w.Errorf("passive: %v", err)
	}
	e := w.name("exchange")
	w.must(w.channel().ExchangeDeclare(e, "topic", true, false, false, false, nil))
	w.must(w.channel().ExchangeDeclare(e, "topic", true, false, false, false, nil))
	w.refused("exchange of another type", amqp.PreconditionFailed, w.channel().ExchangeDeclare(e, "fanout", true, false,
		false, false, nil))
}
