package rabbitmqtest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var quorum = amqp.Table{"x-queue-type": "quorum"}

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
		{a, "one", direct}, {b, "two", direct}, {a, "x.*", topic}, {a, "#.end", topic}, {b, "x.#", topic}, {b, "*.y.*", topic}, {a, "", fanout}, {b, "other", fanout},
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

// deaths shows what a dead letter says of its death.
func deaths(d amqp.Delivery) (list []string) {
	entries, _ := d.Headers["x-death"].([]any)
	for _, e := range entries {
		t, _ := e.(amqp.Table)
		_, timed := t["time"].(time.Time)
		list = append(list, fmt.Sprint(t["reason"], " ", t["count"], " ", timed, " ", t["routing-keys"], " ", t["original-expiration"]))
	}
	return list
}

func rejectedDies(w *world) {
	dead, dlx := w.queue(nil), w.exchange("direct", nil)
	q := w.queue(amqp.Table{"x-dead-letter-exchange": dlx, "x-dead-letter-routing-key": "dead"})
	own := w.queue(amqp.Table{"x-dead-letter-exchange": ""}) // dead letters go by their own key, back to this queue
	none := w.queue(nil)
	w.bind(dead, "dead", dlx)
	p := w.publisher()
	for _, queue := range []string{q, own, none} {
		p.send(queue, "to "+queue)
		ch := w.channel()
		w.must(within(w, w.consume(ch, queue, 1)).Nack(false, false))
		w.must(ch.Cancel("", false)) // answered after the nack
		w.must(ch.Close())
	}
	d := w.drain(dead, 1)[0]
	if d.Exchange != dlx || d.RoutingKey != "dead" || d.Redelivered {
		w.Errorf("dead letter: exchange %q, key %q, redelivered %v", d.Exchange, d.RoutingKey, d.Redelivered)
	}
	w.want("why", deaths(d), []string{"rejected 1 true [" + q + "] <nil>"})
	if d.Headers["x-first-death-reason"] != "rejected" || d.Headers["x-first-death-queue"] != q || d.Headers["x-first-death-exchange"] != "" {
		w.Errorf("headers %v", d.Headers)
	}
	again := w.drain(own, 1)[0]
	w.want("back in its own queue", deaths(again), []string{"rejected 1 true [" + own + "] <nil>"})
	w.ready(none, 0)
}

// expireAtHead gives the first message longer where the machine stood still until the look came too late to tell.
func expireAtHead(w *world) {
	for long := 1500 * time.Millisecond; !expiresAtHead(w, long) && long < patience; {
		long *= 2
	}
}

func expiresAtHead(w *world, long time.Duration) (told bool) {
	dead := w.queue(nil)
	q := w.queue(amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	p := w.publisher()
	expiration, began := fmt.Sprint(long.Milliseconds()), time.Now()
	p.sendAs("", q, amqp.Publishing{Body: []byte("long"), Expiration: expiration})
	p.sendAs("", q, amqp.Publishing{Body: []byte("short"), Expiration: "100"})
	p.sendAs("", q, amqp.Publishing{Body: []byte("for ever")})
	pause(w.Context(), 500*time.Millisecond)
	early, err := w.channel().QueueDeclarePassive(dead, true, false, false, false, nil)
	w.must(err)
	if time.Since(began) >= long {
		return false
	}
	if early.Messages > 0 {
		w.Errorf("%d messages expired before the long one, which is in front of them", early.Messages)
	}
	w.ready(dead, 2)
	got := w.drain(dead, 2)
	w.want("expired", bodies(got), []string{"long", "short"})
	if got[0].Expiration != "" {
		w.Errorf("the dead letter expires after %s", got[0].Expiration)
	}
	w.want("why", deaths(got[0]), []string{"expired 1 true [" + q + "] " + expiration})
	w.want("left", bodies(w.drain(q, 1)), []string{"for ever"})
	closed := p.NotifyClose(make(chan *amqp.Error, 1))
	p.put("", q, amqp.Publishing{Expiration: "soon"})
	w.refused("expiration that is no number", amqp.PreconditionFailed, within(w, closed))
	return true
}

func ttlCycle(w *world) {
	retry := w.name("queue")
	work := w.queue(amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": retry})
	_, err := w.channel().QueueDeclare(retry, true, false, false, false, amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": work, "x-message-ttl": 100,
	})
	w.must(err)
	w.declared = append(w.declared, retry)
	w.publisher().send(work, "m")
	ch := w.channel()
	ds := w.consume(ch, work, 1)
	for n := range 3 { // as a delayed retry does it
		d := within(w, ds)
		var want []string
		if n > 0 {
			want = []string{fmt.Sprint("expired ", n, " true [", retry, "] <nil>"), fmt.Sprint("rejected ", n, " true [", work, "] <nil>")}
		}
		w.want(fmt.Sprint("delivery ", n), deaths(d), want)
		w.must(d.Nack(false, false))
	}
	w.must(within(w, ds).Ack(false))

	one := w.name("queue")
	_, err = w.channel().QueueDeclare(one, true, false, false, false, amqp.Table{"x-dead-letter-exchange": "", "x-message-ttl": 100})
	w.must(err)
	w.declared = append(w.declared, one)
	w.publisher().send(one, "round and round")
	pause(w.Context(), 500*time.Millisecond)
	w.ready(one, 0) // it was not rejected: it is dropped and does not go round again
}

func fullQueue(w *world) {
	rejects := w.queue(amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	p := w.publisher()
	if got := p.send(rejects, "1", "2", "3"); !slices.Equal(got, []bool{true, true, false}) {
		w.Errorf("confirmed: %v", got)
	}
	w.want("kept", bodies(w.drain(rejects, 2)), []string{"1", "2"})
	dead := w.queue(nil)
	drops := w.queue(amqp.Table{"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	if got := p.send(drops, "1", "2", "3"); !slices.Equal(got, []bool{true, true, true}) {
		w.Errorf("confirmed: %v", got)
	}
	w.ready(dead, 1)
	d := w.drain(dead, 1)[0]
	w.want("dropped", append(deaths(d), string(d.Body)), []string{"maxlen 1 true [" + drops + "] <nil>", "1"})
	w.want("kept", bodies(w.drain(drops, 2)), []string{"2", "3"})
}

func quorumCounts(w *world) {
	q, p := w.queue(quorum), w.publisher()
	p.send(q, "m")
	ch := w.channel()
	ds := w.consume(ch, q, 1)
	for n := range int64(3) {
		d := within(w, ds)
		count, has := d.Headers["x-delivery-count"]
		if has != (n > 0) || has && count != n || d.Redelivered != (n > 0) {
			w.Errorf("delivery %d: count %v (%T), redelivered %v", n, count, count, d.Redelivered)
		}
		w.must(d.Nack(false, true))
	}
	d := within(w, ds)
	w.must(ch.Close()) // counts as well
	if last := w.drain(q, 1)[0]; last.Headers["x-delivery-count"] != int64(4) {
		w.Errorf("after %v: %v", d.Headers, last.Headers)
	}
}

func deliveryLimit(w *world) {
	dead := w.queue(nil)
	q := w.queue(with(quorum, "x-delivery-limit", 2, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", dead))
	p := w.publisher()
	p.send(q, "1", "2")
	ds := w.consume(w.channel(), q, 1)
	for range 3 {
		d := within(w, ds)
		if string(d.Body) != "1" {
			w.Errorf("%q came; the first one has its place", d.Body)
		}
		w.must(d.Nack(false, true))
	}
	if d := within(w, ds); string(d.Body) != "2" {
		w.Errorf("%q came after the limit", d.Body)
	}
	w.ready(dead, 1)
	d := w.drain(dead, 1)[0]
	w.want("why", deaths(d), []string{"delivery_limit 1 true [" + q + "] <nil>"})
	w.Logf("headers of the dead letter: %v", d.Headers)
}

func quorumPlaces(w *world) {
	for _, limited := range []bool{false, true} {
		args := quorum
		if limited {
			args = with(quorum, "x-delivery-limit", 5)
		}
		q := w.queue(args)
		w.publisher().send(q, "1", "2", "3")
		ch := w.channel()
		ds := w.consume(ch, q, 1)
		w.must(within(w, ds).Nack(false, true))
		second := within(w, ds)
		if again := string(second.Body) == "1"; again != limited {
			w.Errorf("limited: %v, then %q came after the first was given back", limited, second.Body)
		}
		w.must(ch.Close())
		w.Logf("limited: %v, after the channel was closed: %q", limited, bodies(w.drain(q, 3)))
	}
}

func limitDrops(w *world) {
	q := w.queue(with(quorum, "x-delivery-limit", 0))
	w.publisher().send(q, "gone")
	ds := w.consume(w.channel(), q, 1)
	w.must(within(w, ds).Nack(false, true))
	silent(w, ds)
	w.ready(q, 0)
}

func classicCountsNothing(w *world) {
	q := w.queue(nil)
	w.publisher().send(q, "m")
	ds := w.consume(w.channel(), q, 1)
	w.must(within(w, ds).Nack(false, true))
	if d := within(w, ds); d.Headers != nil || !d.Redelivered {
		w.Errorf("headers %v, redelivered %v", d.Headers, d.Redelivered)
	}
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

// queueExpires gives the queue longer where the machine stood still until it was gone before anybody used it.
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
		if _, err = w.channel().QueueDeclarePassive(q.Name, false, false, false, false, nil); strings.Contains(fmt.Sprint(err), "NOT_FOUND") {
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
	if n := len(ends(w, ofConn)) + len(ends(w, ofChannel)) + len(ends(w, blocked)) + len(ends(w, returns)) + len(ends(w, ds)); n > 0 {
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
	c, err := p.PublishWithDeferredConfirm("", q, true, false, amqp.Publishing{Headers: amqp.Table{"h": strings.Repeat("x", 128<<10)}})
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
	w.refused("a reserved name of an exchange", amqp.AccessRefused, w.channel().ExchangeDeclare("amq.mine", "direct", true, false, false, false, nil))
	ch := w.channel()
	_, err = ch.QueueDeclare(w.name("queue"), true, false, false, false, amqp.Table{"x": struct{}{}})
	if err == nil || ch.IsClosed() {
		w.Errorf("a table that cannot be sent: %v, closed: %v", err, ch.IsClosed())
	}
}
