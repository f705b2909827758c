package outboxtest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/outbox/driver"
)

// session is one relay's hold on some shards of a Memory. Its fields are guarded by the Memory's mu.
type session struct {
	memory   *Memory
	opts     driver.SessionOptions
	name     string // that no other session has
	renewals int64
	over     bool // it was closed, or its hold expired
	shares   shares.Ledger
	leased   map[int]map[int64]bool
	leaving  map[int]bool // shards to give back when their messages are settled
	turn     int          // of the next Lease with Groups
	wake     chan struct{}
	told     map[int]bool // shards that got messages and were not scanned since
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Waker      = (*session)(nil)
	_ driver.Maintainer = (*session)(nil)
)

// Open implements driver.Queue.
func (m *Memory) Open(ctx context.Context, opts driver.SessionOptions) (driver.Session, error) {
	if opts.TTL <= 0 {
		return nil, errors.New("outboxtest: SessionOptions.TTL must be positive")
	}
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open()
	m.opened++
	s := &session{
		memory: m, opts: opts, name: strconv.Itoa(m.opened), leased: map[int]map[int64]bool{}, leaving: map[int]bool{},
		wake: make(chan struct{}, 1), told: map[int]bool{},
	}
	m.wakers = append(m.wakers, s)
	return s, nil
}

// Renew implements driver.Session.
func (s *session) Renew(ctx context.Context) (driver.Hold, error) {
	if err := s.memory.usable(ctx); err != nil {
		return driver.Hold{}, err
	}
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	until, alive := m.relays[s]
	if s.over || s.renewals > 0 && !(alive && until.After(now)) {
		s.over = true
		return driver.Hold{}, driver.ErrLeaseLost
	}
	s.renewals++
	m.relays[s] = now.Add(s.opts.TTL)
	for other, until := range m.relays { // set before the clock was set back: it begins again
		if most := now.Add(other.opts.TTL); until.After(most) {
			m.relays[other] = most
		}
	}
	m.bury(now)
	held := s.share()
	return driver.Hold{
		Until: now.Add(s.opts.TTL), Shards: held, TotalShards: len(m.shards), Relays: len(m.relays),
		SameName: s.sameName(),
	}, nil
}

// bury ends the sessions whose hold has expired.
func (m *Memory) bury(now time.Time) {
	for s, until := range m.relays {
		if !until.After(now) {
			delete(m.relays, s)
			s.over = true
		}
	}
}

// share takes shards or gives some back, and returns how many the session holds then.
func (s *session) share() (held int) {
	m := s.memory
	v := shares.View{Of: len(m.shards), Self: s.name, Others: map[string]int64{}}
	for i := range m.shards {
		if _, alive := m.relays[m.shards[i].owner]; m.shards[i].owner == s {
			v.Mine++
		} else if !alive {
			v.Free = append(v.Free, i)
		}
	}
	for other := range m.relays {
		if other != s {
			v.Others[other.name] = other.renewals
		}
	}
	change := s.shares.Change(v)
	for _, i := range v.Free[:max(0, change)] {
		m.shards[i].owner = s
		m.shards[i].token++
	}
	return v.Mine + max(0, change) - s.giveBack(max(0, -change))
}

// giveBack gives back n shards, those without leased messages first. For the rest it marks shards as leaving: Lease
// skips them, and they are given back when their messages are settled.
func (s *session) giveBack(n int) (given int) {
	clear(s.leaving)
	var busy []int
	for i := range s.memory.shards {
		switch sh := &s.memory.shards[i]; {
		case sh.owner != s || given == n:
		case len(s.leased[i]) == 0:
			sh.owner = nil
			given++
		default:
			busy = append(busy, i)
		}
	}
	for _, i := range busy[:min(n-given, len(busy))] {
		s.leaving[i] = true
	}
	return given
}

// giveBackLeaving gives back the leaving shards that have no leased messages any more.
func (s *session) giveBackLeaving() {
	for i := range s.leaving {
		if sh := &s.memory.shards[i]; sh.owner == s && len(s.leased[i]) == 0 {
			sh.owner = nil
			delete(s.leaving, i)
		}
	}
}

func (s *session) sameName() (n int) {
	for other := range s.memory.relays {
		if other != s && other.opts.Name == s.opts.Name {
			n++
		}
	}
	return n
}

// Close implements driver.Session.
func (s *session) Close(context.Context) error {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	s.over = true
	delete(m.relays, s)
	m.wakers = slices.DeleteFunc(m.wakers, func(w *session) bool { return w == s })
	for i := range m.shards {
		if m.shards[i].owner == s {
			m.shards[i].owner = nil
		}
	}
	m.wake(nil)
	return nil
}

// Wake implements driver.Waker.
func (s *session) Wake() <-chan struct{} { return s.wake }

// wake notifies the sessions of new rows; nil: there may be some in any shard.
func (m *Memory) wake(rows []*row) {
	for _, s := range m.wakers {
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

// Maintain implements driver.Maintainer: it deletes sent messages after KeepSent, and dead sessions.
func (s *session) Maintain(ctx context.Context) error {
	m := s.memory
	if err := m.usable(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.bury(now)
	m.due(now)
	m.sent = slices.DeleteFunc(m.sent, func(r *row) bool { return !r.sentAt.Add(m.KeepSent).After(now) })
	return nil
}

// Sent returns the IDs of the sent messages that are still kept, in the order of their sending.
func (m *Memory) Sent() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	ids := make([]string, len(m.sent))
	for i, r := range m.sent {
		ids[i] = r.ID
	}
	return ids
}

// SetBack makes the outbox look as if its clock had been set back by d, as Outbox.SetBack describes.
func (m *Memory) SetBack(_ context.Context, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, until := range m.relays {
		m.relays[s] = until.Add(d)
	}
	for i := range m.shards {
		for _, holds := range m.shards[i].holds {
			for j, h := range holds {
				if !h.until.IsZero() {
					holds[j].setAt, holds[j].until = h.setAt.Add(d), h.until.Add(d)
				}
			}
		}
		for _, r := range m.shards[i].rows {
			r.retryAt, r.failedAt = r.retryAt.Add(d), r.failedAt.Add(d)
		}
	}
	return nil
}

// Token returns the newest token of a shard. It grows when another session takes the shard.
func (m *Memory) Token(shard int) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if shard >= len(m.shards) { // no session was opened, and nothing was enqueued
		return 0
	}
	return m.shards[shard].token
}
