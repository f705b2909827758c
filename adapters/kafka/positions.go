package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/hooks"
)

// positions lets a member commit an offset to Kafka only when the database has it as well, written by the same server as
// the claims below it. While the member runs it looks whether the database still has what it had, and whether the topics
// are still the same. If not, it ends the session: the next one begins where the database is.
type positions struct {
	m        *member
	store    driver.Positions
	consumer string
	trouble  *hooks.Pause // the database does not answer

	writing sync.Mutex // held while the database is asked about what is being read

	mu      sync.Mutex
	begun   map[partitionID]*reading    // compared, not read yet
	reading map[*partition]*reading     // being read
	session sarama.ConsumerGroupSession // the latest one
	end     context.CancelCauseFunc     // ends the session
}

type partitionID struct {
	topic     string
	partition int32
}

// reading is a row of the database that this session writes.
type reading struct {
	driver.PositionMove // the last one that was written; Next is From of the next one

	history  int64
	log      string // the topic ID when the session began
	metadata string // of each offset that the session commits
	suspects int    // so many of the next messages may be killing the processes that handle them
}

// Reasons to end a session. The next one begins at once.
var (
	errRewound  = errors.New("kafka: the group's offset is not where reading must begin")
	errWentBack = errors.New("kafka: the database has a lower position than it had: it has lost commits")
	errOther    = errors.New("kafka: another member reads the partition")
	errLog      = errors.New("kafka: a topic was created again")
)

// endedByPositions reports whether cause, the end of a session, is one of these.
func endedByPositions(cause error) bool {
	return errors.Is(cause, errRewound) || errors.Is(cause, errWentBack) || errors.Is(cause, errOther) ||
		errors.Is(cause, errLog) || errors.Is(cause, driver.ErrHistoryChanged)
}

// compareEvery is how often a member whose partitions are idle looks whether the database still has its positions, and
// how often each member looks whether the topics are the same.
const compareEvery = 5 * time.Second

// newPositions returns nil if the database of the Processor remembers no positions.
func newPositions(m *member) *positions {
	p, ok := m.cfg.Processor.(consumerdriver.Positioned)
	if !ok {
		return nil
	}
	store, name := p.Positions()
	if store == nil {
		return nil
	}
	s := &positions{
		m: m, store: store, consumer: name,
		begun: map[partitionID]*reading{}, reading: map[*partition]*reading{},
	}
	s.trouble = m.events.NewPause("the database")
	return s
}

// sessionContext returns the context for the next session.
func (s *positions) sessionContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.begun)
	s.end = end
	return ctx, func() { end(nil) }
}

func (s *positions) endSession(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(why)
}

// run writes what moved, once per interval of the automatic commits, until ctx ends.
func (s *positions) run(ctx context.Context) {
	write := time.NewTicker(s.m.client.Config().Consumer.Offsets.AutoCommit.Interval)
	defer write.Stop()
	compare := time.NewTicker(compareEvery)
	defer compare.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-write.C:
			s.settle(ctx, s.write(ctx, false, s.all()...))
		case <-compare.C:
			s.settle(ctx, s.compare(ctx))
			s.settle(ctx, s.checkLogs())
		}
	}
}

func (s *positions) all() (ps []*partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.reading {
		ps = append(ps, p)
	}
	return ps
}

// settle does what err demands: end the session, or nothing but tell that the database is away.
func (s *positions) settle(ctx context.Context, err error) {
	switch {
	case err == nil:
		s.trouble.Worked(ctx)
	case ctx.Err() != nil:
	case endedByPositions(err):
		s.m.log.Info("kafka: the session ends, and another one begins where the database is", "why", err)
		s.endSession(err)
	default:
		s.trouble.Failed(ctx, true, err)
	}
}

// write writes how far ps are handled, and then commits these offsets to the group. close says that their session ends in order.
func (s *positions) write(ctx context.Context, close bool, ps ...*partition) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var moves []driver.PositionMove
	var moved []*partition
	history := s.store.History()
	s.mu.Lock()
	for _, p := range ps {
		r := s.reading[p]
		next := max(p.finished(), 0)
		if r == nil || next <= r.Next && !close {
			continue
		}
		if r.history != history {
			s.mu.Unlock()
			return driver.ErrHistoryChanged
		}
		move := r.PositionMove
		move.From, move.Next, move.Close = r.Next, max(next, r.Next), close
		moves, moved = append(moves, move), append(moved, p)
	}
	s.mu.Unlock()
	if len(moves) == 0 {
		return nil
	}
	left, err := s.store.MovePositions(ctx, history, moves)
	if err != nil {
		return err
	}
	var wrong []error
	var session sarama.ConsumerGroupSession
	for i, p := range moved {
		if row, not := left[i]; not {
			wrong = append(wrong, s.disagrees(moves[i], row))
			continue
		}
		s.mu.Lock()
		r := s.reading[p]
		r.Next = moves[i].Next
		s.mu.Unlock()
		if moves[i].Next > moves[i].From {
			p.commit(moves[i].Next, r.metadata)
			p.acks.Run()
			session = p.session
		}
	}
	if session != nil && !close { // at the end sarama commits by itself
		session.Commit()
	}
	return errors.Join(wrong...)
}

// disagrees returns why the database has not taken move.
func (s *positions) disagrees(move driver.PositionMove, row *driver.Position) error {
	switch {
	case row == nil:
		return fmt.Errorf("%w: the row of %s/%d is missing", errWentBack, move.Source, move.Partition)
	case row.Epoch > move.Epoch || row.Epoch == move.Epoch && row.Next > move.Next:
		return errOther
	}
	return fmt.Errorf("%w: the position of %s/%d was %d, and is %d", errWentBack, move.Source, move.Partition, move.From,
		row.Next)
}

// compare looks whether the database still has what it had.
func (s *positions) compare(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	var had []reading
	s.mu.Lock()
	for _, r := range s.reading {
		had = append(had, *r)
	}
	s.mu.Unlock()
	if len(had) == 0 {
		return nil
	}
	rows, err := s.store.ListPositions(ctx, s.consumer)
	if err != nil {
		return err
	}
	history := s.store.History()
	for _, r := range had {
		i := slices.IndexFunc(rows, func(row driver.Position) bool { return row.PositionID == r.PositionID })
		switch {
		case r.history != history:
			return driver.ErrHistoryChanged
		case i < 0:
			return s.disagrees(r.PositionMove, nil)
		case rows[i].Epoch != r.Epoch || rows[i].Next < r.Next:
			return s.disagrees(r.PositionMove, &rows[i])
		}
	}
	return nil
}

// checkLogs looks whether a topic was deleted and created again. The group's offsets, and fetches that are under way,
// would then skip messages of the new one.
func (s *positions) checkLogs() error {
	if len(s.all()) == 0 {
		return nil
	}
	_, logs, err := s.logs(s.m.cfg.Topics...)
	if err != nil {
		return nil // sarama reports that the brokers are away
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, r := range s.reading {
		if now := logs[p.claim.Topic()]; r.log != "" && now != "" && now != r.log {
			return fmt.Errorf("%w: %s", errLog, p.claim.Topic())
		}
	}
	return nil
}

// logs returns the cluster's ID and the topic IDs. An ID is empty if the cluster has none.
func (s *positions) logs(topics ...string) (cluster string, ids map[string]string, err error) {
	client := s.m.client
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return "", nil, sarama.ErrOutOfBrokers
	}
	if err := broker.Open(client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return "", nil, err
	}
	answer, err := broker.GetMetadata(sarama.NewMetadataRequest(client.Config().Version, topics))
	if err != nil {
		return "", nil, err
	}
	if answer.ClusterID != nil {
		cluster = *answer.ClusterID
	}
	ids = map[string]string{}
	for _, topic := range answer.Topics {
		if topic.Err != sarama.ErrNoError {
			return "", nil, fmt.Errorf("topic %s: %w", topic.Name, topic.Err)
		}
		if topic.Uuid != (sarama.Uuid{}) {
			ids[topic.Name] = topic.Uuid.String()
		}
	}
	return cluster, ids, nil
}

// closeWithin limits the last write for a partition. If it fails, messages are delivered again.
const closeWithin = 3 * time.Second

// finish writes for the last time how far p is handled, and gives its row up.
func (s *positions) finish(p *partition) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.m.ctx), closeWithin)
	defer cancel()
	err := s.write(ctx, true, p)
	s.mu.Lock()
	r := s.reading[p]
	delete(s.reading, p)
	s.mu.Unlock()
	switch {
	case err == nil, r == nil, errors.Is(err, errOther):
		return
	case endedByPositions(err): // no process was killed, although the row stays behind
		_, err = s.store.ChangePosition(ctx, r.PositionID, func(now *driver.Position) (*driver.Position, error) {
			if now == nil || now.Epoch > r.Epoch {
				return nil, nil
			}
			now.Open = false
			return now, nil
		})
		if err == nil {
			return
		}
	}
	s.m.log.Info("kafka: the database has not taken the last position; messages are delivered again",
		"topic", p.claim.Topic(), "partition", p.claim.Partition(), "error", err)
}
