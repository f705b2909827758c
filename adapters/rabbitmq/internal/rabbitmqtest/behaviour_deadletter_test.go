package rabbitmqtest_test

import (
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var quorum = amqp.Table{"x-queue-type": "quorum"}

// deaths shows what a dead letter says of its death.
func deaths(d amqp.Delivery) (list []string) {
	entries, _ := d.Headers["x-death"].([]any)
	for _, e := range entries {
		t, _ := e.(amqp.Table)
		_, timed := t["time"].(time.Time)
		list = append(list, fmt.Sprint(t["reason"], " ", t["count"], " ", timed, " ", t["routing-keys"], " ",
			t["original-expiration"]))
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
	if d.Headers["x-first-death-reason"] != "rejected" || d.Headers["x-first-death-queue"] != q ||
		d.Headers["x-first-death-exchange"] != "" {
		w.Errorf("headers %v", d.Headers)
	}
	again := w.drain(own, 1)[0]
	w.want("back in its own queue", deaths(again), []string{"rejected 1 true [" + own + "] <nil>"})
	w.ready(none, 0)
}

// expireAtHead gives the first message longer when the machine was busy until the look came too late to tell.
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
			want = []string{
				fmt.Sprint("expired ", n, " true [", retry, "] <nil>"),
				fmt.Sprint("rejected ", n, " true [", work, "] <nil>"),
			}
		}
		w.want(fmt.Sprint("delivery ", n), deaths(d), want)
		w.must(d.Nack(false, false))
	}
	w.must(within(w, ds).Ack(false))

	one := w.name("queue")
	_, err = w.channel().QueueDeclare(one, true, false, false, false,
		amqp.Table{"x-dead-letter-exchange": "", "x-message-ttl": 100})
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
