package kafka

import (
	"errors"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

// holdMost is how long the messages after the suspects wait if no suspect is tried: those that are left may wait for an
// earlier message of their ordering key, which fails again and again.
const holdMost = 5 * time.Minute

// suspects holds back the messages after the suspects of a partition until each suspect has been tried. Otherwise such a
// message could kill the process while a suspect is tried, and the suspect would be counted for it: after three times it
// would be parked.
//
// The message that kills may be one of those behind: when the process was killed, the row of the partition was up to an
// interval of the automatic commits old, and messages more than MaxUnfinished after it were in work. So before those
// behind are handled, the row says that the next kill makes more messages suspects.
type suspects struct {
	from, before int64               // messages from from on and before before are suspects
	over         bool                // there are none, or nothing is held back any more
	behind       []*deliver.Delivery // held back
	bytes        int                 // their sizes
	tried        chan struct{}       // receives a value when none is untried; buffered for one
	again        <-chan time.Time    // when the row may be written again; nil: now

	// guarded by partition.mu
	untried int       // so many suspects were delivered and not tried
	last    time.Time // when one was delivered or tried
}

func newSuspects() suspects { return suspects{over: true, tried: make(chan struct{}, 1)} }

// begin makes the messages between the offsets suspects.
func (s *suspects) begin(from, before int64) {
	s.from, s.before, s.over = from, before, before <= from
}

// next returns the offset before which messages are suspects if this process is killed after its suspects were tried.
func (s *suspects) next(maxUnfinished int) int64 {
	return s.before + 2*max(s.before-s.from, int64(maxUnfinished))
}

// add adds deliveries to the Deliverer, or holds them back.
func (p *partition) add(deliveries ...*deliver.Delivery) {
	s := &p.suspects
	n := len(deliveries) // so many are delivered now
	if !s.over {
		n = 0
		p.mu.Lock()
		for n < len(deliveries) && deliveries[n].Message.Suspect {
			n++
		}
		s.untried, s.last = s.untried+n, time.Now()
		p.mu.Unlock()
	}
	for _, d := range deliveries[n:] {
		s.behind, s.bytes = append(s.behind, d), s.bytes+d.Size
	}
	p.deliverer.Add(deliveries[:n]...)
	p.addBehind()
}

// addBehind adds what was held back, if no suspect is left that may be tried soon.
func (p *partition) addBehind() {
	s := &p.suspects
	if len(s.behind) == 0 || s.again != nil {
		return
	}
	p.mu.Lock()
	wait := s.untried > 0 && time.Since(s.last) < holdMost
	p.mu.Unlock()
	if wait {
		return
	}
	if again := p.member.positions.passed(p, s.next(p.member.cfg.MaxUnfinished)); again > 0 {
		s.again = time.After(again)
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
// one of them is finished.
func (p *partition) unfinished() (messages, bytes int, changed <-chan struct{}) {
	messages, bytes, changed = p.deliverer.Unsettled()
	return messages + len(p.suspects.behind), bytes + p.suspects.bytes, changed
}
