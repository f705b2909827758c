package rabbitmqtest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func with(args amqp.Table, more ...any) amqp.Table {
	all := amqp.Table{}
	for name, v := range args {
		all[name] = v
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i].(string)] = more[i+1]
	}
	return all
}

func exchangesRoute(w *world) {
	direct, topic, fanout := w.exchange("direct", nil), w.exchange("topic", nil), w.exchange("fanout", nil)
	a, b := w.queue(nil), w.queue(nil)
	for _, to := range []struct{ queue, key, exchange string }{
		{a, "one", direct},
		{b, "two", direct},
		{a, "x.*", topic},
		{a, "#.end", topic},
		{b, "x.#", topic},
		{b, "*.y.*", topic},
		{a, "", fanout},
		{b, "other", fanout},
	} {
		w.bind(to.queue, to.key, to.exchange)
	}
	p := w.publisher()
	var wantA, wantB []string
	for _, m := range []struct {
		exchange, key string
		a, b          bool
	}{
		{direct, "one", true, false},
		{direct, "two", false, true},
		{topic, "x", false, true},
		{topic, "x.y", true, true},
		{topic, "x.y.z", false, true},
		{topic, "end", true, false},
		{topic, "q.y.z", false, true},
		{topic, "x.end", true, true},
		{topic, "a.b.end", true, false},
		{fanout, "anything", true, true},
	} {
		if !p.sendAs(m.exchange, m.key, amqp.Publishing{Body: []byte(m.key)}) {
			w.Errorf("%s is not confirmed", m.key)
		}
		if m.a {
			wantA = append(wantA, m.key)
		}
		if m.b {
			wantB = append(wantB, m.key)
		}
	}
	silent(w, p.returns)
	p.sendAs(direct, "three", amqp.Publishing{})
	p.sendAs(topic, "y", amqp.Publishing{})
	if one, two := within(w, p.returns), within(w, p.returns); one.RoutingKey != "three" || two.RoutingKey != "y" {
		w.Errorf("returned: %q, %q", one.RoutingKey, two.RoutingKey)
	}
	got := w.drain(a, len(wantA))
	w.want("first queue", bodies(got), wantA)
	if got[0].Exchange != direct || got[0].RoutingKey != "one" {
		w.Errorf("came from %q with %q", got[0].Exchange, got[0].RoutingKey)
	}
	w.want("second queue", bodies(w.drain(b, len(wantB))), wantB)
}

func alternateExchange(w *world) {
	rest := w.exchange("fanout", nil)
	main := w.exchange("direct", amqp.Table{"alternate-exchange": rest})
	q := w.queue(nil)
	w.bind(q, "", rest)
	p := w.publisher()
	p.sendAs(main, "lost", amqp.Publishing{Body: []byte("kept")})
	silent(w, p.returns)
	w.want("kept", bodies(w.drain(q, 1)), []string{"kept"})
}

func singleActive(w *world) {
	q := w.queue(amqp.Table{"x-single-active-consumer": true})
	p := w.publisher()
	first, second := w.channel(), w.channel()
	a := w.consume(first, q, 1)
	b := w.consume(second, q, 1)
	p.send(q, "1", "2")
	one := within(w, a)
	silent(w, b)
	w.must(one.Ack(false))
	within(w, a)
	w.must(first.Close())
	if d := within(w, b); string(d.Body) != "2" || !d.Redelivered {
		w.Errorf("the next one got %q, redelivered %v", d.Body, d.Redelivered)
	}
}

func takeTurns(w *world) {
	q, p := w.queue(nil), w.publisher()
	a, b := w.consume(w.channel(), q, 2), w.consume(w.channel(), q, 2)
	p.send(q, "1", "2", "3", "4", "5")
	var got []string
	for range 2 {
		got = append(got, string(within(w, a).Body), string(within(w, b).Body))
	}
	slices.Sort(got)
	w.want("both together", got, []string{"1", "2", "3", "4"})
	silent(w, a)
	silent(w, b)
}

func deletedCancels(w *world) {
	name := w.name("queue")
	_, err := w.channel().QueueDeclare(name, true, false, false, false, nil)
	w.must(err)
	w.publisher().send(name, "1", "2")
	ch := w.channel()
	cancelled := ch.NotifyCancel(make(chan string, 1))
	w.must(ch.Qos(1, 0, false))
	ds, err := ch.ConsumeWithContext(w.Context(), name, "tag", false, false, false, false, nil)
	w.must(err)
	d := within(w, ds)
	w.deleteQueue(name)
	if tag := within(w, cancelled); tag != "tag" {
		w.Errorf("cancelled %q", tag)
	}
	ends(w, ds)
	w.must(d.Ack(false)) // no error follows
	if _, err := ch.QueueDeclarePassive(w.queue(nil), false, false, false, false, nil); err != nil {
		w.Errorf("the channel afterwards: %v", err)
	}
	_, err = ch.QueueDeclarePassive(name, false, false, false, false, nil)
	w.refused("the queue afterwards", amqp.NotFound, err)
}

func cancelKeeps(w *world) {
	q, p := w.queue(nil), w.publisher()
	p.send(q, "1", "2", "3")
	ch := w.channel()
	w.must(ch.Qos(2, 0, false))
	ds, err := ch.ConsumeWithContext(w.Context(), q, "tag", false, false, false, false, nil)
	w.must(err)
	one := within(w, ds)
	w.must(ch.Cancel("tag", false))
	rest := ends(w, ds) // what had come
	w.must(one.Ack(false))
	for _, d := range rest {
		w.must(d.Nack(false, true))
	}
	w.ready(q, 2)
	w.want("left", bodies(w.drain(q, 2)), []string{"2", "3"})
}

// queueExpires gives the queue longer when the machine was busy until it was gone before anybody used it.
func queueExpires(w *world) {
	for life := 1500 * time.Millisecond; !expiresUnused(w, life) && life < patience; {
		life *= 2
	}
}

func expiresUnused(w *world, life time.Duration) (used bool) {
	name, ch := w.name("queue"), w.channel()
	_, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-expires": life.Milliseconds()})
	w.must(err)
	w.must(ch.Qos(1, 0, false))
	ds, err := ch.ConsumeWithContext(w.Context(), name, "", false, false, false, false, nil)
	if gone := new(amqp.Error); errors.As(err, &gone) && gone.Code == amqp.NotFound {
		return false
	}
	w.must(err)
	pause(w.Context(), life+500*time.Millisecond)
	silent(w, ds) // it is in use
	w.must(ch.Close())
	look := w.channel()
	for end := time.Now().Add(patience); err == nil && time.Now().Before(end); {
		pause(w.Context(), 2*life) // looking is a use of it
		_, err = look.QueueDeclarePassive(name, false, false, false, false, nil)
	}
	w.refused("unused for long", amqp.NotFound, err)
	return true
}

func shortLived(w *world) {
	c := w.conn()
	ch, err := c.Channel()
	w.must(err)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	w.must(err)
	if !strings.HasPrefix(q.Name, "amq.gen-") {
		w.Errorf("it is called %q", q.Name)
	}
	_, err = w.channel().QueueDeclarePassive(q.Name, false, false, false, false, nil)
	w.refused("another connection", amqp.ResourceLocked, err)
	w.must(c.Close())
	for end := time.Now().Add(patience); time.Now().Before(end); { // a moment later
		if _, err = w.channel().QueueDeclarePassive(q.Name, false, false, false, false,
			nil); strings.Contains(fmt.Sprint(err), "NOT_FOUND") {
			break
		}
		pause(w.Context(), 20*time.Millisecond)
	}
	w.refused("after its connection", amqp.NotFound, err)

	name := w.name("queue")
	_, err = w.channel().QueueDeclare(name, false, true, false, false, nil)
	w.must(err)
	user := w.channel()
	w.consume(user, name, 1)
	w.must(user.Close())
	_, err = w.channel().QueueDeclarePassive(name, false, false, false, false, nil)
	w.refused("after its last consumer", amqp.NotFound, err)
}

func closedConnection(w *world) {
	c := w.conn()
	ch, err := c.Channel()
	w.must(err)
	ofConn, ofChannel := c.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyClose(make(chan *amqp.Error, 1))
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 1))
	returns := ch.NotifyReturn(make(chan amqp.Return))
	ds := w.consume(ch, w.queue(nil), 1)
	w.must(c.Close())
	if n := len(ends(w, ofConn)) + len(ends(w, ofChannel)) + len(ends(w, blocked)) + len(ends(w, returns)) + len(ends(w,
		ds)); n > 0 {
		w.Errorf("%d things were said", n)
	}
	w.refused("Close again", amqp.ChannelError, c.Close())
	w.must(ch.Close())
	_, err = c.Channel()
	w.refused("Channel", amqp.ChannelError, err)
	w.refused("Qos", amqp.ChannelError, ch.Qos(1, 0, false))
	if _, open := <-c.NotifyClose(make(chan *amqp.Error)); open {
		w.Error("a late listener hears something")
	}
	if _, open := <-ch.NotifyCancel(make(chan string)); open {
		w.Error("a late listener hears something")
	}
	other := w.conn()
	w.must(other.CloseDeadline(time.Now().Add(time.Minute)))
	if !other.IsClosed() {
		w.Error("it is not closed")
	}
}

func tooLarge(w *world) {
	q, p := w.queue(nil), w.publisher()
	closed := p.NotifyClose(make(chan *amqp.Error, 1))
	p.put("", q, amqp.Publishing{Body: make([]byte, 128<<20+1)})
	w.refused("publish", amqp.PreconditionFailed, within(w, closed))
	w.ready(q, 0)
}

func headersTooLarge(w *world) {
	q, p := w.queue(nil), w.publisher()
	fits := amqp.Table{"h": strings.Repeat("x", 128<<10-200)}
	if !p.sendAs("", q, amqp.Publishing{Headers: fits}) {
		w.Error("not confirmed")
	}
	closed := p.NotifyClose(make(chan *amqp.Error, 1))
	c, err := p.PublishWithDeferredConfirm("", q, true, false,
		amqp.Publishing{Headers: amqp.Table{"h": strings.Repeat("x", 128<<10)}})
	w.refused("publish", amqp.FrameError, within(w, closed))
	if err == nil && w.acked(c) {
		w.Error("confirmed")
	}
	w.ready(q, 1)
}

func confirmsPerChannel(w *world) {
	q, a, b := w.queue(nil), w.publisher(), w.publisher()
	for range 3 {
		for _, p := range []*publisher{a, b} {
			if !p.sendAs("", q, amqp.Publishing{}) {
				w.Error("not confirmed")
			}
		}
	}
	plain := w.channel() // not in confirm mode: no answer comes
	c, err := plain.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{})
	if w.must(err); c != nil {
		w.Error("there is a confirm outside of confirm mode")
	}
	w.must(plain.Confirm(false))
	c, err = plain.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{})
	if w.must(err); !w.acked(c) {
		w.Error("not confirmed")
	}
	w.ready(q, 8)
}

func badArguments(w *world) {
	for name, args := range map[string]amqp.Table{
		"no such type":              {"x-queue-type": "heap"},
		"a ttl that is text":        {"x-message-ttl": "soon"},
		"a negative ttl":            {"x-message-ttl": -1},
		"expires at once":           {"x-expires": 0},
		"overflow":                  {"x-overflow": "explode"},
		"a key without an exchange": {"x-dead-letter-routing-key": "k"},
	} {
		_, err := w.channel().QueueDeclare(w.name("queue"), true, false, false, false, args)
		w.refused(name, amqp.PreconditionFailed, err)
	}
	_, err := w.channel().QueueDeclare(w.name("queue"), false, false, false, false, quorum)
	w.refused("a quorum queue that is not durable", amqp.PreconditionFailed, err)
	_, err = w.channel().QueueDeclare("amq.mine", true, false, false, false, nil)
	w.refused("a reserved name", amqp.AccessRefused, err)
	w.refused("a reserved name of an exchange", amqp.AccessRefused, w.channel().ExchangeDeclare("amq.mine", "direct",
		true, false, false, false, nil))
	ch := w.channel()
	_, err = ch.QueueDeclare(w.name("queue"), true, false, false, false, amqp.Table{"x": struct{}{}})
	if err == nil || ch.IsClosed() {
		w.Errorf("a table that cannot be sent: %v, closed: %v", err, ch.IsClosed())
	}
}
