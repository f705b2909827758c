package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// result is a case that has ended.
type result struct {
	n      int
	lane   string
	shot   *shot
	orders []*order
	trace  []step
	bad    []string

	counts  []*shot // the faults that were counted
	counted bool    // as bad
	relay   bool    // it is one of a relay
	idle    bool    // that has published none of its messages
	ordered bool    // the outbox messages have one ordering key, and were committed in the order of orders
}

// faults returns the shots that count. Those of a relay do if it has published a message of the case itself.
func (r *result) faults() []*shot {
	if r.idle {
		return nil
	}
	return r.shot.all()
}

func (r *result) fault(format string, args ...any) {
	r.bad = append(r.bad, fmt.Sprintf(format, args...))
}

// plan is the seed's choice for a case.
func (w *world) plan(n int, c cell, l *lane) (*result, *rand.Rand) {
	rng := rand.New(rand.NewPCG(w.seed, uint64(n)+1<<32))
	r := &result{n: n, lane: l.name, shot: newShot(rng, c, l.codes, &w.looking), relay: l.node == nil}
	if rng.IntN(3) == 0 { // a second fault, while the first one is being dealt with
		tried, _ := l.role.cells()
		r.shot.next = newShot(rng, tried[rng.IntN(len(tried))], l.codes, &w.looking)
	}
	count := 1 + rng.IntN(max(l.most, 1))
	for i := range count {
		o := &order{body: body{ID: fmt.Sprintf("c%d-%d", n, i), Key: fmt.Sprintf("k%d-%d", n, i)}, twin: rng.IntN(2) == 0}
		if rng.IntN(4) > 0 {
			o.Out = topic(n)
		}
		switch rng.IntN(12) {
		case 0:
			o.Fails = -1
		case 1, 2:
			o.Fails = 1
		}
		r.orders = append(r.orders, o)
	}
	switch one := r.orders[rng.IntN(count)]; c.need {
	case poison:
		one.Fails = -1
	case failure:
		one.Fails = 1
	case twin:
		one.twin = true
	case anything, fresh:
	}
	return r, rng
}

// topic is that of a case's outbox messages.
func topic(n int) string { return fmt.Sprintf("t%d", n) }

// consume runs a case of a lane. other gets the second deliveries.
func (w *world) consume(ctx context.Context, l, other *lane, n int, c cell) *result {
	r, rng := w.plan(n, c, l)
	if c.need == fresh {
		l.reset()
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.arm(r.shot)
	var twins []*order
	for _, o := range r.orders {
		if o.twin {
			twins = append(twins, o)
		}
	}
	var deliveries sync.WaitGroup
	var mu sync.Mutex
	deliver := func(n node, inFlight *atomic.Int64, orders []*order, after time.Duration) {
		deliveries.Go(func() {
			if pause(ctx, after) {
				return
			}
			bad := w.deliver(ctx, n, inFlight, orders)
			mu.Lock()
			defer mu.Unlock()
			r.bad = append(r.bad, bad...)
		})
	}
	deliver(l.node, &l.inFlight, r.orders, 0)
	if len(twins) > 0 {
		deliver(other.node, new(atomic.Int64), twins, time.Duration(rng.IntN(3000))*time.Microsecond)
	}
	deliveries.Wait()
	r.trace, _ = l.disarm()
	return r
}

// deliver delivers messages until they are acknowledged. inFlight has the number of those that are not.
func (w *world) deliver(ctx context.Context, n node, inFlight *atomic.Int64, orders []*order) (bad []string) {
	inFlight.Add(int64(len(orders)))
	defer func() { inFlight.Add(int64(-len(orders))) }()
	attempts := make(map[*order]int, len(orders))
	for len(orders) > 0 {
		msgs := make([]*consumer.Message, len(orders))
		for i, o := range orders {
			msgs[i] = w.message(o, attempts[o]+1)
		}
		var again, acked []*order
		var after time.Duration
		for i, err := range n.ProcessBatch(ctx, msgs) {
			o := orders[i]
			retry, ok := errors.AsType[*consumer.RetryError](err)
			switch {
			case err == nil:
				acked = append(acked, o)
			case ok:
				if !retry.Held {
					attempts[o]++
				}
				again = append(again, o)
				after = max(after, min(retry.After, 50*time.Millisecond))
			default:
				bad = append(bad, fmt.Sprintf("%s was rejected: %v", o.ID, err))
			}
		}
		bad = append(bad, w.acked(ctx, acked)...)
		inFlight.Add(int64(len(again) - len(orders)))
		if orders = again; len(again) > 0 && pause(ctx, after) {
			for _, o := range again {
				bad = append(bad, fmt.Sprintf("%s was not acknowledged within %v", o.ID, limit))
			}
			return bad
		}
	}
	return bad
}

// acked checks that each message has an effect or a letter when it is acknowledged. A COMMIT that is late does not arrive
// while it looks: a message that was acknowledged before its COMMIT has neither.
func (w *world) acked(ctx context.Context, orders []*order) (bad []string) {
	if len(orders) == 0 {
		return nil
	}
	w.looking.RLock()
	defer w.looking.RUnlock()
	var ids []any
	for _, o := range orders {
		ids = append(ids, o.ID)
	}
	list := w.in(len(ids))
	done := map[string]bool{}
	for _, query := range []string{
		`SELECT name FROM effects WHERE name IN (` + list + `)`,
		`SELECT message_id FROM dead_letters WHERE message_id IN (` + list + `)`,
	} {
		found, err := w.strings(ctx, query, ids...)
		if err != nil && ctx.Err() == nil {
			bad = append(bad, fmt.Sprintf("look at acknowledged messages: %v", err))
		}
		if err != nil {
			return bad
		}
		for _, id := range found {
			done[id] = true
		}
	}
	for _, o := range orders {
		if !done[o.ID] {
			bad = append(bad, o.ID+" was acknowledged and has neither an effect nor a letter")
		}
	}
	return bad
}

// publishes runs a case of a relay: messages are consumed without faults, and published under one.
func (w *world) publishes(ctx context.Context, l *lane, n int, c cell) *result {
	r, rng := w.plan(n, c, l)
	r.orders, r.ordered = nil, rng.IntN(2) == 0
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l.arm(r.shot)
	began := time.Now()
	for i := 0; i < 3 || i < 40 && !l.tried(topic(n)) && time.Since(began) < leaseTTL; i++ {
		o := &order{body: body{ID: fmt.Sprintf("c%d-%d", n, i), Key: fmt.Sprintf("k%d-%d", n, i), Out: topic(n)}}
		if r.ordered {
			o.Key = topic(n)
		}
		r.orders = append(r.orders, o)
		l.inFlight.Add(1)
		r.bad = append(r.bad, w.deliver(ctx, w.clean, new(atomic.Int64), []*order{o})...)
		if i == 0 && c.need == fresh {
			l.proxy.HangUp()
		}
		_ = pause(ctx, 5*time.Millisecond)
	}
	for {
		left, err := w.strings(ctx, `SELECT id FROM outbox_messages WHERE topic = `+w.name(1)+
			` UNION ALL SELECT id FROM outbox_delayed WHERE topic = `+w.name(2), topic(n), topic(n))
		if err == nil && len(left) == 0 {
			break
		}
		if pause(ctx, 5*time.Millisecond) {
			r.fault("%d messages were not settled within %v: %s, %v", len(left), limit, strings.Join(left, " "), err)
			break
		}
	}
	l.inFlight.Add(int64(-len(r.orders)))
	var topics map[string]bool
	r.trace, topics = l.disarm()
	r.idle = !topics[topic(n)]
	return r
}

// pause waits. It reports true if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-ctx.Done():
		return true
	}
}

func (s *shot) String() string {
	text := s.cell.place() + ", " + s.cell.kind.String()
	switch s.does.Kind {
	case wireproxy.CutLate, wireproxy.Stall:
		text += " " + s.does.For.String()
	case wireproxy.Answer:
		text += " " + s.does.Code
	default:
	}
	text += fmt.Sprintf(" (%q)", s.fired)
	if s.fired != "" && !s.done.Load() {
		text += " that was not carried out"
	}
	if s.next != nil {
		text += ", then " + s.next.String()
	}
	return text
}
