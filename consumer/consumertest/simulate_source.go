package consumertest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

// source is a broker's queue: it delivers what is not acknowledged again, and what is acknowledged never. It keeps the
// order of each ordering key, as brokers do: a message waits until the earlier ones are acknowledged, unless the same
// process gets them in the same batch.
type source struct {
	name string
	mu   sync.Mutex
	all  []*delivery
}

type delivery struct {
	msg     consumer.Message
	waiting bool
	after   time.Time // it waits until then
	acked   bool
	with    *Process
}

func (q *source) add(m consumer.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.Attempt, m.Topic = 1, q.name
	m.Position = fmt.Sprintf("%s/%d", q.name, len(q.all))
	q.all = append(q.all, &delivery{msg: m, waiting: true})
}

// lost gives back what a process had that has crashed.
func (q *source) lost(p *Process) {
	q.change(p, func(d *delivery) { d.waiting, d.with = true, nil; d.msg.Attempt++ })
}

// expire delivers what p has to others too.
func (q *source) expire(p *Process) { q.change(p, func(d *delivery) { d.waiting = true }) }

func (q *source) change(p *Process, f func(d *delivery)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.all {
		if d.with == p && !d.acked {
			f(d)
		}
	}
}

// ready reports whether something can be received.
func (q *source) ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.next(1)) > 0
}

// next returns up to most deliveries that can be received together.
func (q *source) next(most int) (batch []*delivery) {
	behind := map[string]bool{} // ordering keys of which a message is not acknowledged, and not in batch
	for _, d := range q.all {
		key := d.msg.OrderingKey
		switch {
		case len(batch) == most:
			return batch
		case d.acked:
		case d.ready() && !behind[key]:
			batch = append(batch, d)
		case key != "":
			behind[key] = true
		}
	}
	return batch
}

func (d *delivery) ready() bool { return d.waiting && !time.Now().Before(d.after) }

func (q *source) drained() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !slices.ContainsFunc(q.all, func(d *delivery) bool { return !d.acked })
}

func (q *source) take(p *Process, most int) (batch []*delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch = q.next(most)
	for _, d := range batch {
		d.waiting, d.with = false, p
	}
	return batch
}

// again delivers d once more, after a while. counted says that an attempt was made.
func (q *source) again(d *delivery, after time.Duration, counted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.waiting, d.with, d.after = true, nil, time.Now().Add(after)
	if counted {
		d.msg.Attempt++
	}
}

func (q *source) ack(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d.acked = true
}

// consume starts a process with a consumer that reads from q.
func (w *world) consume(q *source, role string, create func(*Process) (*consumer.Consumer[*deduptest.Tx], error)) {
	p := w.process(role, func() { w.consume(q, role, create) })
	c, err := create(p)
	if err != nil {
		w.sim.Break("Simulation.New: %v", err)
		return
	}
	started := make(chan struct{})
	if role == roleFirst {
		w.sim.Go(func() {
			<-started
			w.operate(p, c)
		})
	}
	for lane := range w.lanes {
		w.sim.Go(func() {
			if lane == 0 { // two that leave Start together would run in any order
				_ = c.Start(p.ctx)
				close(started)
			} else {
				<-started
			}
			ready := func() bool { return p.stops() || q.ready() }
			for p.sim.When("receive", fmt.Sprint("in lane ", lane+1), ready).Action != sim.Gone && !p.stops() {
				w.handle(p, c, q)
			}
		})
	}
}

// pause lets d pass for the caller.
func (w *world) pause(p *Process, d time.Duration) {
	timer := time.NewTimer(p.sim.Unlike(d))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}

// handle processes one batch, and acknowledges it as the answers say.
func (w *world) handle(p *Process, c *consumer.Consumer[*deduptest.Tx], q *source) {
	most := w.most
	if w.alone {
		most = 1
	}
	batch := q.take(p, most)
	if len(batch) == 0 {
		return
	}
	w.working.Add(1)
	defer w.working.Add(-1)
	msgs := make([]*consumer.Message, len(batch))
	for i, d := range batch {
		m := d.msg
		_, _ = w.keyOf(p, c, m)
		msgs[i] = &m
		p.sim.Note("gets %s at %s, attempt %d", nameOf(&m), m.Position, m.Attempt)
	}
	var errs []error
	if w.alone {
		errs = []error{c.Process(p.ctx, msgs[0])}
	} else {
		errs = c.ProcessBatch(p.ctx, msgs)
	}
	for i, d := range batch {
		if p.sim.Dead() || !w.settle(p, c, q, d, errs[i]) {
			return
		}
	}
}

// settle acknowledges d or gives it back. It returns false when the process has ended.
func (w *world) settle(p *Process, c *consumer.Consumer[*deduptest.Tx], q *source, d *delivery, err error) bool {
	if err != nil {
		retry, again := errors.AsType[*consumer.RetryError](err)
		if !again {
			w.sim.Break("%s rejects %s although its store keeps dead letters: %v", p.Name(), nameOf(&d.msg), err)
			return false
		}
		p.sim.Note("gives %s back: %v", nameOf(&d.msg), err)
		q.again(d, max(retry.After, time.Millisecond), !retry.Held)
		return true
	}
	w.checkAck(p, c, &d.msg)
	switch p.sim.At("ack", d.msg.Position).Action {
	case "lost":
		q.again(d, 0, true)
	case "crash":
		p.sim.Crash()
		return false
	case sim.Gone:
		return false
	default:
		p.sim.Note("acknowledges %s at %s", nameOf(&d.msg), d.msg.Position)
		q.ack(d)
	}
	return true
}

// nameOf names a message in a trace: a program may leave the ID out, and take its key from the payload.
func nameOf(m *consumer.Message) string {
	return cmp.Or(m.ID, "a message")
}
