//go:build unix

package main

import (
	"context"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// stand is a Publisher that can be told to stop in the middle of its work, where a fault then strikes: with messages
// leased and not published, or published and not settled. It neither drops nor changes anything.
type stand struct {
	outbox.Publisher
	say func(messages int) // it stands, with so many

	mu    sync.Mutex
	where place // anywhere: nowhere
	free  chan struct{}
}

func newStand(p outbox.Publisher, say func(messages int)) *stand {
	return &stand{Publisher: p, say: say}
}

// At lets the next call stand. Free lets it go on.
func (s *stand) At(where place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == nil {
		s.where, s.free = where, make(chan struct{})
	}
}

// Free undoes At, whether a call has come or not.
func (s *stand) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free != nil {
		close(s.free)
		s.where, s.free = anywhere, nil
	}
}

// Publish implements outbox.Publisher.
func (s *stand) Publish(ctx context.Context, msgs []outbox.Message) []error {
	s.pass(beforePublish, len(msgs))
	errs := s.Publisher.Publish(ctx, msgs)
	s.pass(afterPublish, len(msgs))
	return errs
}

// pass stands here if it is told to. It does not heed a deadline: neither does a process that is frozen.
func (s *stand) pass(here place, messages int) {
	s.mu.Lock()
	if s.where != here {
		s.mu.Unlock()
		return
	}
	s.where = anywhere // one call stands, the others go on
	free := s.free
	s.mu.Unlock()
	s.say(messages)
	<-free
}
