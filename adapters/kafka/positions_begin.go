package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
)

// beginWithin limits the first comparison of a session's partitions, which other members wait for.
const beginWithin = 10 * time.Second

// beginAll compares all partitions of a new session, before any is read: sarama then begins where beginOne has moved the
// offsets. A partition that cannot be compared now, or that comes later, is compared by begin.
func (s *positions) beginAll(session sarama.ConsumerGroupSession) error {
	s.mu.Lock()
	s.session = session
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(session.Context(), beginWithin)
	defer cancel()
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		refused error
		slots   = make(chan struct{}, 8)
	)
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			all.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				id := partitionID{topic, partition}
				r, _, err := s.beginOne(ctx, session, id)
				if err == nil {
					s.mu.Lock()
					s.begun[id] = r
					s.mu.Unlock()
				}
				if _, is := errors.AsType[*refusal](err); is {
					mu.Lock()
					refused = errors.Join(refused, err)
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if refused != nil {
		s.m.fail(refused)
	}
	return refused
}

// begin returns nil if the partition must not be read in this session. It waits for a database that is away.
func (s *positions) begin(session sarama.ConsumerGroupSession, p *partition) *reading {
	id := partitionID{p.claim.Topic(), p.claim.Partition()}
	s.mu.Lock()
	r := s.begun[id]
	delete(s.begun, id)
	s.mu.Unlock()
	ctx := p.deliverer.Context()
	delay := backoff.FullJitter(100*time.Millisecond, 5*time.Second)
	for failures := 1; r == nil; failures++ {
		var reset bool
		var err error
		r, reset, err = s.beginOne(ctx, session, id)
		_, refused := errors.AsType[*refusal](err)
		switch {
		case refused:
			s.m.fail(err)
			return nil
		case reset: // it is being read from another offset
			s.dropped(id, r)
			return nil
		case err == nil:
			s.trouble.Worked(ctx)
			continue
		}
		s.trouble.Failed(ctx, true, err)
		if await.Sleep(ctx, delay(failures)) != nil {
			return nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reading[p] = r
	return r
}

// outOfRange is called when a broker does not have the offset that a partition is read from. It reports whether reading
// begins elsewhere in the next session, because the topic was created again or the database went back.
func (s *positions) outOfRange(id partitionID) bool {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.m.ctx, beginWithin)
	defer cancel()
	r, reset, err := s.beginOne(ctx, session, id)
	if err == nil {
		s.dropped(id, r)
	}
	return err == nil && reset
}

// dropped ends the session, and lets it give up r, which it has begun and will not read.
func (s *positions) dropped(id partitionID, r *reading) {
	s.mu.Lock()
	s.begun[id] = r
	s.mu.Unlock()
	s.endSession(errRewound)
}

// refusal is an error that only a person can settle.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// beginOne compares one partition, and takes its row for this session. reset says that the group's offset had to be
// moved, so that reading must begin in another session.
func (s *positions) beginOne(ctx context.Context, session sarama.ConsumerGroupSession, id partitionID) (
	r *reading, reset bool, err error,
) {
	cluster, f, err := s.find(id)
	if err != nil {
		return nil, false, err
	}
	return s.beginAt(ctx, session, id, cluster, f)
}

// beginAt is beginOne where Kafka has f.
func (s *positions) beginAt(ctx context.Context, session sarama.ConsumerGroupSession, id partitionID, cluster string,
	f found,
) (r *reading, reset bool, err error) {
	row := driver.PositionID{
		Consumer: s.consumer, Partition: id.partition,
		Source: fmt.Sprintf("kafka %s, group %s, topic %s", cluster, s.m.cfg.Group, id.topic),
	}
	var b beginning
	var now driver.Position
	history, err := s.store.ChangePosition(ctx, row, func(was *driver.Position) (*driver.Position, error) {
		var err error
		if b, err = begin(f, was); err != nil {
			return nil, &refusal{fmt.Errorf("kafka: group %s does not read %s/%d: %w. %s", s.m.cfg.Group, id.topic,
				id.partition, err, s.m.reset(id.topic, id.partition, "--to-offset OFFSET"))}
		}
		now = b.position(was, int64(s.m.cfg.MaxUnfinished))
		now.PositionID = row
		return &now, nil
	})
	if err != nil {
		return nil, false, err
	}
	s.tell(id, b)
	r = &reading{
		PositionMove: driver.PositionMove{PositionID: row, Epoch: now.Epoch, From: b.at, Next: b.at},
		history:      history, log: f.log, metadata: b.mark.String(),
	}
	if now.Tries >= suspectsAfter {
		r.suspects = now.Suspect
	}
	// MarkOffset moves the offset up only, ResetOffset down or not at all.
	session.MarkOffset(id.topic, id.partition, b.at, r.metadata)
	session.ResetOffset(id.topic, id.partition, b.at, r.metadata)
	return r, b.reset, nil
}

// find reads what Kafka has.
func (s *positions) find(id partitionID) (cluster string, f found, err error) {
	f = found{consumer: s.consumer, now: time.Now()}
	cluster, logs, err := s.logs(id.topic)
	if err != nil {
		return "", f, err
	}
	f.log = logs[id.topic]
	o, err := s.m.offsets(id.topic, id.partition)
	if err != nil {
		return "", f, err
	}
	f.committed, f.metadata, f.first, f.initial = o.committed, o.metadata, o.oldest, o.oldest
	if s.m.client.Config().Consumer.Offsets.Initial == sarama.OffsetNewest {
		f.initial = o.newest
	}
	return cluster, f, nil
}

// tell reports what was found.
func (s *positions) tell(id partitionID, b beginning) {
	log := s.m.log.With("topic", id.topic, "partition", id.partition)
	if b.note != "" {
		log.Warn("kafka: "+b.note, "offset", b.at)
	}
	if b.rewind == (driver.Rewind{}) {
		return
	}
	w := b.rewind
	err := fmt.Errorf("kafka: the database went back: group %s has handled %s/%d up to %d, and the database knows only of those before %d: "+
		"it is another server that lacked the last commits, or a backup. Messages from %d on are read again: those whose effects were lost "+
		"are handled again, the others are duplicates", s.m.cfg.Group, id.topic, id.partition, w.From, w.Lost, w.To)
	if w.To > w.Lost {
		err = fmt.Errorf("%w. Kafka has deleted the messages from %d up to %d: if their effects were lost, they stay lost", err, w.Lost, w.To)
	}
	log.Error(err.Error(), "group_offset", w.From, "database_offset", w.Lost, "begins_at", w.To)
	s.m.events.WentBack(s.m.hooksCtx, consumerdriver.SourceEvent{
		Source: id.topic, Partition: id.partition, Offset: w.To, Messages: int(w.From - w.To), Err: err,
	})
}
