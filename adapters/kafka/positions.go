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
	marked  bool                        // there are offsets to commit
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
	suspects int64  // messages before this offset may be killing the processes that handle them
	covered  int    // so many messages were finished when the row was changed last
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
	s.end = end
	return ctx, func() {
		end(nil)
		s.giveUpBegun()
	}
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
			s.ask(ctx, func(ctx context.Context) (asked bool, err error) { return s.write(ctx, false, s.all()...) })
			s.commit()
		case <-compare.C:
			s.ask(ctx, s.compare)
			if err := s.checkLogs(); err != nil {
				s.settle(ctx, err)
			}
		}
	}
}

// askWithin limits how long one question to the database takes: the last write of a partition waits for it.
const askWithin = 5 * time.Second

// ask does what the answer of the database demands.
func (s *positions) ask(ctx context.Context, question func(ctx context.Context) (asked bool, err error)) {
	limited, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if asked, err := question(limited); asked || err != nil {
		s.settle(ctx, err)
	}
}

// commit lets sarama commit what was marked, without waiting for its own interval.
func (s *positions) commit() {
	s.mu.Lock()
	session, marked := s.session, s.marked
	s.marked = false
	s.mu.Unlock()
	if marked {
		session.Commit()
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

// write writes how far ps are handled, and then marks these offsets as the group's. close says that their session ends
// in order. asked is false if there was nothing to write.
func (s *positions) write(ctx context.Context, close bool, ps ...*partition) (asked bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	var moves []driver.PositionMove
	var moved []*partition
	var covered []int
	history := s.store.History()
	s.mu.Lock()
	for _, p := range ps {
		r := s.reading[p]
		next, done := p.finished()
		if r == nil || next <= r.Next && !close {
			continue
		}
		if r.history != history {
			s.mu.Unlock()
			return true, driver.ErrHistoryChanged
		}
		move := r.PositionMove
		move.From, move.Next, move.Close = r.Next, max(next, r.Next), close
		moves, moved, covered = append(moves, move), append(moved, p), append(covered, done)
	}
	s.mu.Unlock()
	if len(moves) == 0 {
		return false, nil
	}
	left, err := s.store.MovePositions(ctx, history, moves)
	if err != nil {
		return true, err
	}
	var wrong []error
	for i, p := range moved {
		if row, not := left[i]; not {
			wrong = append(wrong, s.disagrees(moves[i], row))
			continue
		}
		s.mu.Lock()
		r := s.reading[p]
		r.Next, r.covered = moves[i].Next, covered[i]
		s.marked = s.marked || moves[i].Next > moves[i].From
		s.mu.Unlock()
		if moves[i].Next > moves[i].From {
			p.commit(moves[i].Next, r.metadata)
			p.acks.Run()
		}
	}
	return true, errors.Join(wrong...)
}

// disagrees returns why the database has not taken move.
func (s *positions) disagrees(move driver.PositionMove, row *driver.Position) error {
	switch {
	case row == nil:
		return fmt.Errorf("%w: the row of %s/%d is missing", errWentBack, move.Source, move.Partition)
	case row.Epoch > move.Epoch || row.Epoch == move.Epoch && row.Next > move.Next:
		return errOther
	case row.Epoch < move.Epoch && row.Next >= move.From:
		return fmt.Errorf("%w: the row of %s/%d is an older one", errWentBack, move.Source, move.Partition)
	}
	return fmt.Errorf("%w: the position of %s/%d was %d, and is %d", errWentBack, move.Source, move.Partition, move.From,
		row.Next)
}

// compare looks whether the database still has what it had.
func (s *positions) compare(ctx context.Context) (asked bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	var had []reading
	s.mu.Lock()
	for _, r := range s.reading {
		had = append(had, *r)
	}
	s.mu.Unlock()
	if len(had) == 0 {
		return false, nil
	}
	rows, err := s.store.ListPositions(ctx, s.consumer)
	if err != nil {
		return true, err
	}
	history := s.store.History()
	for _, r := range had {
		i := slices.IndexFunc(rows, func(row driver.Position) bool { return row.PositionID == r.PositionID })
		switch {
		case r.history != history:
			return true, driver.ErrHistoryChanged
		case i < 0:
			return true, s.disagrees(r.PositionMove, nil)
		case rows[i].Epoch != r.Epoch || rows[i].Next < r.Next:
			return true, s.disagrees(r.PositionMove, &rows[i])
		}
	}
	return true, s.beat(ctx)
}

// beat changes the rows of partitions whose position waits for a message that is not finished, if later ones are: with
// a row that has not changed since, a backup that was restored would not show, and the effects of the later messages
// would be lost when the position moves on. s.writing is held.
func (s *positions) beat(ctx context.Context) error {
	for _, p := range s.all() {
		s.mu.Lock()
		r := s.reading[p]
		next, done := p.finished()
		same := r == nil || next > r.Next || done == r.covered
		s.mu.Unlock()
		if same {
			continue
		}
		if err := s.change(ctx, r, func(now *driver.Position) { now.Epoch++ }); err != nil {
			return err
		}
		s.mu.Lock()
		r.covered = done
		s.mu.Unlock()
	}
	return nil
}

// passed writes that the suspects of p were tried. If the process is killed after that, the messages before suspect are
// the next suspects. If passed could not write, it returns after how long it may be called again. If the answer of the
// database is lost, the row may have changed all the same: passed then writes the same again.
func (s *positions) passed(p *partition, suspect int64) (again time.Duration) {
	if !s.writing.TryLock() { // another write waits for the database, and the caller must not
		return passAgain
	}
	defer s.writing.Unlock()
	s.mu.Lock()
	r := s.reading[p]
	s.mu.Unlock()
	ctx := p.deliverer.Context()
	limited, cancel := context.WithTimeout(ctx, passWithin)
	defer cancel()
	err := s.change(limited, r, func(now *driver.Position) { now.Suspect, now.Tries = suspect, 1 })
	s.settle(ctx, err)
	if err != nil {
		return passWithin
	}
	return 0
}

const (
	passWithin = time.Second // limits a write that the messages of a partition wait for
	passAgain  = 50 * time.Millisecond
)

// change lets edit change the row of r. It fails if the row is not as this session has left it. s.writing is held.
func (s *positions) change(ctx context.Context, r *reading, edit func(*driver.Position)) error {
	s.mu.Lock()
	move, history := r.PositionMove, r.history
	s.mu.Unlock()
	var wrong error
	var epoch int64
	met, err := s.store.ChangePosition(ctx, move.PositionID, func(now *driver.Position) (*driver.Position, error) {
		if wrong = nil; now == nil || now.Epoch != move.Epoch || now.Next != move.Next {
			move.From = move.Next
			wrong = s.disagrees(move, now)
			return nil, nil
		}
		edit(now)
		epoch = now.Epoch
		return now, nil
	})
	switch {
	case err != nil:
		return err
	case met != history:
		return driver.ErrHistoryChanged
	case wrong != nil:
		return wrong
	}
	s.mu.Lock()
	r.Epoch = epoch
	s.mu.Unlock()
	return nil
}
