package kafka

import (
	"errors"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

// holdMost is how long the messages after the suspects wait if no suspect is tried.
const holdMost = 5 * time.Minute

// suspects holds back the messages after the suspects of a partition until each suspect has been tried. Otherwise such a
// message could kill the process while a suspect is tried, and the suspect would be counted for it: after three times it
// would be parked.
//
// The message that kills may be one of those behind: when the process was killed, the row of the partition was up to an
// interval of the automatic commits old, and messages more than MaxUnfinished after it were in work. So before those
// behind are handled, the row says that the next kill makes more messages suspects.
type suspects struct {
	from, before int64               // a message is a suspect if its offset is at least from and less than before
	over         bool                // there are none, or nothing is held back any more
	behind       []*deliver.Delivery // held back
	bytes        int                 // their sizes
	tried        chan struct{}       // receives a value when none is untried; buffered for one
	again        <-chan time.Time    // when the row may be written again; nil: now

	// guarded by partition.mu
	untried map[string]int  // by ordering key: so many suspects were delivered and not tried
	failing map[string]bool // ordering keys whose first suspect has failed, so that the others wait for it
	pending int             // the untried ones of all other keys
	last    time.Time       // when one was delivered or tried
}

func newSuspects() suspects {
	return suspects{
		over: true, tried: make(chan struct{}, 1), untried: map[string]int{}, failing: map[string]bool{},
	}
}

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
		p.mu.Lock()
		for n = 0; n < len(deliveries) && deliveries[n].Message.Suspect; n++ {
			key := deliveries[n].Message.OrderingKey
			s.untried[key]++
			if !s.failing[key] {
				s.pending++
			}
		}
		s.last = time.Now()
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
	wait := s.pending > 0 && time.Since(s.last) < holdMost
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

// noteTrial notes the answer about a message. A suspect was tried unless it only waits: for the trial of another message,
// for the database, or for an earlier message of its key. A message that was tried and failed is retried like any other;
// later ones of its key are not tried before it is finished, and nothing waits for those.
func (p *partition) noteTrial(msg *consumer.Message, err error) {
	retry, again := errors.AsType[*consumer.RetryError](err)
	s, key := &p.suspects, msg.OrderingKey
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case again && retry.Held:
		return
	case msg.Suspect:
		msg.Suspect = false
		s.last = time.Now()
		s.untried[key]--
		s.pending--
		if again && key != "" {
			s.failing[key] = true
			s.pending -= s.untried[key]
		}
	case !again && s.failing[key]:
		delete(s.failing, key)
		s.pending += s.untried[key]
	default:
		return
	}
	if s.pending == 0 {
		select {
		case s.tried <- struct{}{}:
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
