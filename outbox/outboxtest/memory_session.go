package outboxtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txonce/txonce/outbox"
)

// session is one relay's hold on some shards of a Memory. Its fields are guarded by the Memory's mu.
type session struct {
	memory *Memory
	opts   outbox.SessionOptions
	begun  bool // it has been renewed
	over   bool // it was closed, or its hold ran out
	leased map[int]map[int64]bool
	turn   int // of the next Lease with Parts
	wake   chan struct{}
	told   map[int]bool // shards that were not looked at since they got messages
}

var (
	_ outbox.Session = (*session)(nil)
	_ outbox.Waker   = (*session)(nil)
	_ outbox.Tidier  = (*session)(nil)
)

// Open implements outbox.Queue.
func (m *Memory) Open(ctx context.Context, opts outbox.SessionOptions) (outbox.Session, error) {
	if opts.TTL <= 0 {
		return nil, errors.New("outboxtest: SessionOptions.TTL must be positive")
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	s := &session{memory: m, opts: opts, leased: map[int]map[int64]bool{}, wake: make(chan struct{}, 1), told: map[int]bool{}}
	m.wakers[s] = true
	return s, nil
}

// Renew implements outbox.Session.
func (s *session) Renew(ctx context.Context) (outbox.Hold, error) {
	if err := context.Cause(ctx); err != nil {
		return outbox.Hold{}, err
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	until, alive := m.relays[s]
	if s.over || s.begun && !(alive && until.After(now)) {
		s.over = true
		return outbox.Hold{}, outbox.ErrLeaseLost
	}
	s.begun = true
	m.relays[s] = now.Add(s.opts.TTL)
	m.bury(now)
	held := s.share((len(m.shards) + len(m.relays) - 1) / len(m.relays))
	return outbox.Hold{
		Until: now.Add(s.opts.TTL), Shards: held, Of: len(m.shards), Relays: len(m.relays), Namesakes: s.namesakes(),
	}, nil
}

// bury ends the sessions whose hold has run out.
func (m *Memory) bury(now time.Time) {
	for s, until := range m.relays {
		if !until.After(now) {
			delete(m.relays, s)
			s.over = true
		}
	}
}

// share gives back what is above fair and has nothing leased, or takes what is free up to it.
func (s *session) share(fair int) (held int) {
	m := s.memory
	for i := range m.shards {
		if m.shards[i].owner == s {
			held++
		}
	}
	for i := range m.shards {
		sh := &m.shards[i]
		_, alive := m.relays[sh.owner]
		switch {
		case sh.owner == s && held > fair && len(s.leased[i]) == 0:
			sh.owner = nil
			held--
		case sh.owner != s && !alive && held < fair:
			sh.owner = s
			sh.token++
			held++
		}
	}
	return held
}

func (s *session) namesakes() (n int) {
	for other := range s.memory.relays {
		if other != s && other.opts.Name == s.opts.Name {
			n++
		}
	}
	return n
}

// Close implements outbox.Session.
func (s *session) Close(context.Context) error {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s.over = true
	delete(m.relays, s)
	delete(m.wakers, s)
	for i := range m.shards {
		if m.shards[i].owner == s {
			m.shards[i].owner = nil
		}
	}
	m.wake(nil)
	return nil
}

// Wake implements outbox.Waker.
func (s *session) Wake() <-chan struct{} { return s.wake }

// wake tells the sessions that these rows have come; nil: anything may have.
func (m *Memory) wake(rows []*row) {
	for s := range m.wakers {
		for i := range m.shards {
			s.told[i] = s.told[i] || rows == nil
		}
		for _, r := range rows {
			s.told[r.Shard] = true
		}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// Tidy implements outbox.Tidier: it forgets sent messages whose time is over, and dead sessions.
func (s *session) Tidy(ctx context.Context) error {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.bury(now)
	m.due(now)
	m.sent = slices.DeleteFunc(m.sent, func(r *row) bool { return !r.sentAt.Add(m.KeepSent).After(now) })
	return context.Cause(ctx)
}

// Sent returns the IDs of the messages that are kept after they were sent, in the order in which they were.
func (m *Memory) Sent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, len(m.sent))
	for i, r := range m.sent {
		ids[i] = r.ID
	}
	return ids
}
