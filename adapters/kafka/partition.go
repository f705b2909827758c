package kafka

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/internal/hooks"
)

// pauseAfter is how long a partition that has MaxUnfinished messages leaves claim.Messages unread before it pauses the
// fetches.
const pauseAfter = 250 * time.Millisecond

// partition handles the messages of one partition while the group assigns it to this member. The Deliverer keeps their
// order and retries them. The partition adds what offsets need: it marks an offset only when all messages before it are
// finished.
type partition struct {
	member    *member
	session   sarama.ConsumerGroupSession
	claim     sarama.ConsumerGroupClaim
	deliverer *deliver.Deliverer
	markers   markers
	fullSince time.Time // zero: there are fewer than MaxUnfinished messages
	paused    bool      // nothing is fetched
	suspects  suspects

	mu      sync.Mutex // for settle, which runs on the goroutines of batches
	offsets offsetTracker
	next    int64 // the offset after those that are finished; 0: unknown
	done    int   // so many messages are finished, also behind others that are not
	revoked bool  // nothing may be marked any more

	acks hooks.Order // of the hooks Acked and Revoked
}

// ConsumeClaim implements sarama.ConsumerGroupHandler. sarama runs it on a goroutine of its own per partition.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	p := &partition{member: m, session: session, claim: claim, suspects: newSuspects()}
	p.markers = markers{next: claim.InitialOffset(), found: make(chan undeliveredRange, 1)}
	// Handlers outlive the session by the grace period. In eager mode it ends when a rebalance begins.
	p.deliverer = deliver.New(session.Context(), deliver.Config{
		Processor: m.cfg.Processor, Concurrency: m.cfg.Concurrency, MaxBatch: m.cfg.MaxBatch,
		MaxBatchBytes: m.cfg.MaxBatchBytes,
		SplitEvenly:   true,
		Settle:        p.settle,
		Keep:          p.keep,
		Logger:        m.log.With("topic", claim.Topic(), "partition", claim.Partition()),
	})
	assigned := driver.SourceEvent{
		Source: claim.Topic(), Partition: claim.Partition(),
		Generation: session.GenerationID(), Member: session.MemberID(),
	}
	m.events.Assigned(m.hooksCtx, assigned)
	if p.begin() {
		p.receive()
	}
	p.drain()
	if p.paused { // sarama would remember it until the partition is assigned to this member again
		m.group.Resume(p.self())
	}
	p.acks.Add(func() { m.events.Revoked(m.hooksCtx, assigned) })
	p.acks.Run()
	return nil
}

// begin reports whether messages may be received.
func (p *partition) begin() bool {
	if p.member.positions == nil {
		p.commitStart()
		return true
	}
	r := p.member.positions.begin(p.session, p)
	if r == nil {
		return false
	}
	p.suspects.begin(r.Next, r.suspects)
	if p.markers.next < 0 {
		p.markers.next = r.Next
	}
	return true
}

// commitStart commits the start of the partition for a group without a committed offset in it. Otherwise a deletion of
// messages before the first commit would go unnoticed. It also gives the group an offset for an empty partition.
func (p *partition) commitStart() {
	if p.claim.InitialOffset() != sarama.OffsetOldest {
		return
	}
	oldest, err := p.member.client.GetOffset(p.claim.Topic(), p.claim.Partition(), sarama.OffsetOldest)
	if err == nil { // else the first mark does it
		p.markers.next = oldest
		p.session.MarkOffset(p.claim.Topic(), p.claim.Partition(), oldest, "")
	}
}

// receive adds messages to the Deliverer until the partition is revoked, or the Processor rejects a message. In eager
// mode the session ends when the partition is revoked; in cooperative mode only Messages is closed.
func (p *partition) receive() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	idle := time.NewTicker(markersEvery)
	defer idle.Stop()
	for p.deliverer.Context().Err() == nil {
		messages, changed, wait := p.readable()
		if wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-p.deliverer.Context().Done():
		case raw, open := <-messages:
			if !open || !p.take(raw, messages) {
				return
			}
		case <-changed:
		case <-p.suspects.tried:
			p.addBehind()
		case <-p.suspects.again:
			p.suspects.again = nil
			p.addBehind()
		case <-idle.C:
			p.findMarkers()
			p.addBehind()
		case s := <-p.markers.found:
			p.passMarkers(s)
		case <-timer.C:
		}
	}
}

// take adds raw and all that is buffered behind it. It returns false when Messages is closed.
func (p *partition) take(raw *sarama.ConsumerMessage, messages <-chan *sarama.ConsumerMessage) (open bool) {
	var taken []*deliver.Delivery
	unfinished, bytes, _ := p.unfinished()
	for {
		d := p.delivery(raw)
		taken = append(taken, d)
		bytes += d.Size
		if p.full(unfinished+len(taken), bytes) && !p.paused {
			break
		}
		select {
		case raw, open = <-messages:
			if !open {
				return false
			}
			continue
		default:
		}
		break
	}
	p.add(taken...)
	return true
}

func (p *partition) delivery(raw *sarama.ConsumerMessage) *deliver.Delivery {
	p.markers.next = raw.Offset + 1
	msg := ToMessage(raw)
	msg.Suspect = raw.Offset < p.suspects.before
	p.mu.Lock()
	defer p.mu.Unlock()
	return &deliver.Delivery{Message: msg, Key: msg.OrderingKey, Size: sizeOf(raw), Raw: p.offsets.deliver(raw)}
}

// full reports whether no more messages are read.
func (p *partition) full(unfinished, bytes int) bool {
	return unfinished >= p.member.cfg.MaxUnfinished || bytes >= 2*p.member.cfg.MaxBatchBytes
}

// readable returns the channel to read messages from, which is nil while the partition is full. The caller calls it
// again when changed is closed, and after wait unless that is 0.
//
// A full partition must not leave Messages unread for long: in cooperative mode its closing is the only sign that the
// partition is revoked, and that sign comes behind the buffered messages. So after pauseAfter the fetches are paused,
// and what was fetched already is read although the partition is full. They are not paused at once, because after a
// pause it takes half a second until messages arrive again.
func (p *partition) readable() (messages <-chan *sarama.ConsumerMessage, changed <-chan struct{}, wait time.Duration) {
	unfinished, bytes, changed := p.unfinished()
	messages = p.claim.Messages()
	if !p.full(unfinished, bytes) {
		if p.paused {
			p.member.group.Resume(p.self())
		}
		p.paused, p.fullSince = false, time.Time{}
		return messages, nil, 0
	}
	if p.paused {
		return messages, changed, 0
	}
	if p.fullSince.IsZero() {
		p.fullSince = time.Now()
	}
	wait = time.Until(p.fullSince.Add(pauseAfter))
	if wait > 0 {
		return nil, changed, wait
	}
	p.paused = true
	p.member.group.Pause(p.self())
	return messages, changed, 0
}

func (p *partition) self() map[string][]int32 {
	return map[string][]int32{p.claim.Topic(): {p.claim.Partition()}}
}

// settle marks the offset of a handled message when all before it are finished as well. Other messages stay unfinished:
// the next owner of the partition gets them.
func (p *partition) settle(d *deliver.Delivery, err error) {
	p.noteTrial(d.Message, err)
	if _, again := errors.AsType[*consumer.RetryError](err); again {
		return
	}
	if err != nil {
		p.member.fail(fmt.Errorf("kafka: %w", err))
		return
	}
	p.mark(d.Raw.(*trackedOffset))
	p.acks.Run()
}

// keep keeps each message that must be handled again in memory.
func (p *partition) keep(d *deliver.Delivery, retry *consumer.RetryError) bool {
	p.noteTrial(d.Message, retry)
	return true
}

// mark records that a message is finished.
func (p *partition) mark(finished *trackedOffset) {
	p.mu.Lock()
	low := p.offsets.finish(finished)
	p.done++
	p.mu.Unlock()
	if low != nil {
		p.finishedUpTo(low.Offset + 1)
	}
}

// finishedUpTo records that all messages before next are finished. With positions, the offset is committed later, when
// the database has it.
func (p *partition) finishedUpTo(next int64) {
	p.mu.Lock()
	p.next = max(p.next, next)
	p.mu.Unlock()
	if p.member.positions == nil {
		p.commit(next, "")
	}
}

// finished returns the offset after those that are finished, and how many messages are finished, also behind others that
// are not.
func (p *partition) finished() (next int64, done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next, p.done
}

// commit lets sarama commit next as the group's offset.
func (p *partition) commit(next int64, metadata string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.revoked {
		return
	}
	p.session.MarkOffset(p.claim.Topic(), p.claim.Partition(), next, metadata)
	if p.member.events.WantsAcks() {
		p.acks.Add(func() {
			p.member.events.Acked(p.member.hooksCtx,
				driver.SourceEvent{Source: p.claim.Topic(), Partition: p.claim.Partition(), Offset: next - 1})
		})
	}
}

// drain waits for the batches in work: first for the grace period, then with their contexts cancelled.
func (p *partition) drain() {
	err := p.deliverer.Drain(p.member.grace(), p.member.handlerExit())
	if p.member.positions != nil {
		p.member.positions.finish(p)
	}
	p.mu.Lock()
	p.revoked = true
	p.mu.Unlock()
	if errors.Is(err, deliver.ErrAbandoned) {
		p.member.log.Error("kafka: a handler still runs although its context is cancelled; its messages are delivered again",
			"topic", p.claim.Topic(), "partition", p.claim.Partition(), "error", err)
		p.member.abandoned.Go(p.deliverer.Wait)
	}
}
