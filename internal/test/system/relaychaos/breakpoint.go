//go:build unix

package main

import (
	"context"
	"sync"

	"github.com/txonce/txonce/outbox"
)

// breakpoint is a Publisher that can be ordered to stop in the middle of its work, so that a fault hits a relay with
// messages that are leased and not published, or published and not settled. It does not drop or change messages.
type breakpoint struct {
	outbox.Publisher
	say func(messages int) // called when it stops, with the number of messages

	mu    sync.Mutex
	where place // anywhere: do not stop
	free  chan struct{}
}

func newBreakpoint(p outbox.Publisher, say func(messages int)) *breakpoint {
	return &breakpoint{Publisher: p, say: say}
}

// At makes the next call stop at where. Free resumes it.
func (s *breakpoint) At(where place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == nil {
		s.where, s.free = where, make(chan struct{})
	}
}

// Free undoes At, whether a call has stopped or not.
func (s *breakpoint) Free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free != nil {
		close(s.free)
		s.where, s.free = anywhere, nil
	}
}

// Publish implements outbox.Publisher.
func (s *breakpoint) Publish(ctx context.Context, msgs []outbox.Message) []error {
	s.pass(beforePublish, len(msgs))
	errs := s.Publisher.Publish(ctx, msgs)
	s.pass(afterPublish, len(msgs))
	return errs
}

// pass stops if At was called for this place. It ignores deadlines, like a frozen process.
func (s *breakpoint) pass(here place, messages int) {
	s.mu.Lock()
	if s.where != here {
		s.mu.Unlock()
		return
	}
	s.where = anywhere // one call stops, the others do not
	free := s.free
	s.mu.Unlock()
	s.say(messages)
	<-free
}
