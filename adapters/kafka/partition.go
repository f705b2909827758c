package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/lanes"
)

// stalled is how long a full queue goes unread before the partition's fetches are paused.
const stalled = 250 * time.Millisecond

// partition handles the messages of one partition for as long as the group leaves it to this member. Up to Concurrency
// batches are in work at a time, of which no two have an ordering key in common.
type partition struct {
	*member
	session sarama.ConsumerGroupSession
	claim   sarama.ConsumerGroupClaim

	queue   queue
	marks   marks
	markers markers
	running int         // batches in work
	results chan result // has room for all of them, so that a handler nobody waits for any more can leave
	full    time.Time   // since when the queue is full; zero: it is not
	paused  bool        // nothing is fetched
}

// result is what the Processor answered.
type result struct {
	batch []*delivery
	errs  []error
}

// ConsumeClaim implements sarama.ConsumerGroupHandler. sarama runs it on a goroutine of its own per partition.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	p := &partition{member: m, session: session, claim: claim, results: make(chan result, m.cfg.Concurrency)}
	p.markers = markers{next: claim.InitialOffset(), found: make(chan span, 1)}
	assigned := Assignment{claim.Topic(), claim.Partition(), session.GenerationID(), session.MemberID()}
	if f := m.cfg.Trace.Assigned; f != nil {
		f(assigned)
	}
	p.commitStart()
	p.run()
	if f := m.cfg.Trace.Revoked; f != nil {
		f(assigned)
	}
	return nil
}

// commitStart commits where a group starts that never committed anything for this partition. Otherwise nobody would
// notice messages deleted before the first commit. It also leaves the group with an offset for partitions that are empty.
func (p *partition) commitStart() {
	if p.claim.InitialOffset() != sarama.OffsetOldest {
		return
	}
	oldest, err := p.client.GetOffset(p.claim.Topic(), p.claim.Partition(), sarama.OffsetOldest)
	if err == nil { // else the first mark does it
		p.markers.next = oldest
		p.session.MarkOffset(p.claim.Topic(), p.claim.Partition(), oldest, "")
	}
}

func (p *partition) run() {
	// In-flight work outlives the session, which in eager mode ends when a rebalance begins, by the grace.
	work, cancel := context.WithCancel(p.work)
	defer cancel()
	p.serve(work)
	p.drain(work, cancel)
	if p.paused { // sarama would remember it until the partition comes back
		p.group.Resume(p.self())
	}
}

// serve takes messages in and has them handled until the partition is to be given up. In eager mode the session
// ends then; in cooperative mode it goes on and only Messages is closed.
func (p *partition) serve(work context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	idle := time.NewTicker(lookEvery)
	defer idle.Stop()
	for p.session.Context().Err() == nil {
		messages, wake := p.flow(p.deliver(work))
		if wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-p.session.Context().Done():
		case raw, open := <-messages:
			if !open || !p.take(raw, messages) {
				return
			}
		case r := <-p.results:
			p.settle(work, r)
		case <-idle.C:
			p.look()
		case s := <-p.markers.found:
			p.pass(s)
		case <-timer.C:
		}
	}
}

// take adds raw and what else is waiting. It returns false when the partition is to be given up.
func (p *partition) take(raw *sarama.ConsumerMessage, messages <-chan *sarama.ConsumerMessage) bool {
	for {
		p.markers.next = raw.Offset + 1
		p.queue.add(&delivery{msg: ToMessage(raw), mark: p.marks.deliver(raw), size: sizeOf(raw)})
		if p.queueFull() && !p.paused {
			return true
		}
		select {
		case next, open := <-messages:
			if !open {
				return false
			}
			raw = next
		default:
			return true
		}
	}
}

func (p *partition) queueFull() bool {
	return len(p.queue.waiting) >= p.cfg.MaxUnfinished || p.queue.bytes >= 2*p.cfg.MaxBatchBytes
}

// flow returns where to receive from: nil while the queue is full. But Messages must not go unread for long, for in
// cooperative mode its closing is the only word that the partition is to be given up, and stands behind what is
// buffered. So when the queue stays full the fetches are paused, and what was fetched already is taken in regardless.
// Fetches are not paused at once, because they take half a second to get going again.
func (p *partition) flow(wake time.Time) (<-chan *sarama.ConsumerMessage, time.Time) {
	messages := p.claim.Messages()
	switch full := p.queueFull(); {
	case p.paused:
		if !full {
			p.paused, p.full = false, time.Time{}
			p.group.Resume(p.self())
		}
		return messages, wake
	case !full:
		p.full = time.Time{}
		return messages, wake
	case p.full.IsZero():
		p.full = time.Now()
	case time.Since(p.full) >= stalled:
		p.paused = true
		p.group.Pause(p.self())
		return messages, wake
	}
	if pause := p.full.Add(stalled); wake.IsZero() || pause.Before(wake) {
		wake = pause
	}
	return nil, wake
}

func (p *partition) self() map[string][]int32 {
	return map[string][]int32{p.claim.Topic(): {p.claim.Partition()}}
}

// deliver has the next batches handled, unless enough are in work or none is due. wake is when one will be.
func (p *partition) deliver(work context.Context) (wake time.Time) {
	for p.running < p.cfg.Concurrency {
		batch, wake := p.queue.pick(time.Now(), p.batchSize(), p.cfg.MaxBatchBytes)
		if len(batch) == 0 {
			return wake
		}
		msgs := make([]*consumer.Message, len(batch))
		for i, d := range batch {
			msgs[i] = d.msg
		}
		p.running++
		p.handlers.Go(func() { p.results <- result{batch, lanes.Call(work, p.cfg.Processor, msgs)} })
	}
	return time.Time{}
}

// batchSize is a batch's share of what is unfinished. Whichever batch begins, and however many are in work, it leaves theirs to
// the others: a batch that took all that waits would have the rest idle until it is done.
func (p *partition) batchSize() int {
	if p.batches == nil {
		return 1
	}
	share := (len(p.queue.waiting) + p.cfg.Concurrency - 1) / p.cfg.Concurrency
	return min(max(share, 1), p.cfg.MaxBatch)
}

// settle acts on the answers for a batch.
func (p *partition) settle(work context.Context, r result) {
	p.running--
	var low *sarama.ConsumerMessage
	failed := map[string]bool{}
	now := time.Now()
	for i, d := range r.batch {
		var retry *consumer.RetryError
		switch err := r.errs[i]; {
		case err == nil:
			d.finished = true
			if mark := p.marks.finish(d.mark); mark != nil {
				low = mark
			}
			continue
		case errors.As(err, &retry):
			if !retry.Uncounted {
				d.msg.Attempt++
			}
			d.again(now, retry.After, failed[d.msg.Key])
		case work.Err() != nil && errors.Is(err, work.Err()): // an answer to the cancelling, not to the message
		default:
			p.fail(fmt.Errorf("kafka: message %s was given up on and kept nowhere, so it stays unacknowledged; "+
				"a Store that is a consumer.ParkingLot would have kept it: %w", d.msg.Position, err))
		}
		if d.msg.Key != "" {
			failed[d.msg.Key] = true
		}
	}
	p.queue.settle(r.batch)
	if low == nil {
		return
	}
	p.session.MarkMessage(low, "")
	if f := p.cfg.Trace.Marked; f != nil {
		f(low.Topic, low.Partition, low.Offset)
	}
}

// drain waits for the batches in work, first patiently, then with their context cancelled.
func (p *partition) drain(work context.Context, cancel context.CancelFunc) {
	if p.running == 0 || p.settleWithin(work, p.patience()) {
		return
	}
	log := p.log.With("topic", p.claim.Topic(), "partition", p.claim.Partition(), "first", p.queue.inWork().msg.Position, "batches", p.running)
	log.Warn("kafka: a handler was still running after the grace period; its context is cancelled")
	cancel()
	if !p.settleWithin(work, p.settling()) {
		log.Error("kafka: a handler goes on although its context is cancelled; its messages are delivered again")
	}
}

// settleWithin reports whether all batches in work have been answered.
func (p *partition) settleWithin(work context.Context, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for p.running > 0 {
		select {
		case r := <-p.results:
			p.settle(work, r)
		case <-timer.C:
			return false
		}
	}
	return true
}
