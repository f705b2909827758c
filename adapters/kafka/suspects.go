package kafka

import (
	"errors"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

// holdMost is how long the messages after the suspects wait if no suspect is tried: those that are left may wait for an
// earlier message of their ordering key, which fails again and again.
const holdMost = time.Minute

// suspects holds back the messages after the suspects of a partition until each suspect has been tried. Otherwise such a
// message could kill the process while a suspect is tried, and the suspect would be counted for it: after three times it
// would be parked.
type suspects struct {
	before int64               // messages before this offset are suspects, see reading.suspects
	behind []*deliver.Delivery // held back
	bytes  int                 // their sizes
	tried  chan struct{}       // receives a value when none is untried; buffered for one
	over   bool                // nothing is held back any more

	// guarded by partition.mu
	untried int       // so many suspects were delivered and not tried
	last    time.Time // when one was delivered or tried
}

// add adds deliveries to the Deliverer, or holds them back.
func (p *partition) add(deliveries ...*deliver.Delivery) {
	s := &p.suspects
	n := 0 // so many are delivered now
	p.mu.Lock()
	for n < len(deliveries) && len(s.behind) == 0 {
		if deliveries[n].Message.Suspect {
			s.untried, s.last = s.untried+1, time.Now()
		} else if s.untried > 0 && !s.over {
			break
		}
		n++
	}
	p.mu.Unlock()
	for _, d := range deliveries[n:] {
		s.behind, s.bytes = append(s.behind, d), s.bytes+d.Size
	}
	p.deliverer.Add(deliveries[:n]...)
}

// addBehind adds what was held back, if no suspect is left that may be tried soon.
func (p *partition) addBehind() {
	s := &p.suspects
	if len(s.behind) == 0 {
		return
	}
	p.mu.Lock()
	wait := s.untried > 0 && time.Since(s.last) < holdMost
	p.mu.Unlock()
	if wait {
		return
	}
	held := s.behind
	s.behind, s.bytes, s.over = nil, 0, true
	p.deliverer.Add(held...)
}

// noteTrial notes that a suspect has an answer. It was tried unless it only waits: for the trial of another message, or
// for the database. A message that was tried and failed is retried like any other.
func (p *partition) noteTrial(msg *consumer.Message, err error) {
	if retry, again := errors.AsType[*consumer.RetryError](err); !msg.Suspect || again && retry.Held {
		return
	}
	msg.Suspect = false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspects.last = time.Now()
	if p.suspects.untried--; p.suspects.untried == 0 {
		select {
		case p.suspects.tried <- struct{}{}:
		default:
		}
	}
}

// unfinished returns how many messages were read and are not finished, and the sum of their sizes. changed is closed when
// fewer are in the Deliverer.
func (p *partition) unfinished() (messages, bytes int, changed <-chan struct{}) {
	messages, bytes, changed = p.deliverer.Unsettled()
	return messages + len(p.suspects.behind), bytes + p.suspects.bytes, changed
}
