package outboxtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// refusalCases are about refused messages and refused settings.
func refusalCases() []publisherCase {
	const each = "25: Publish answers for each message"
	var cases []publisherCase
	for at := range 5 {
		cases = append(cases, publisherCase{
			name: fmt.Sprintf("the others are confirmed when message %d of 5 is refused", at+1), hazard: each,
			atomic: no,
			run:    func(e *publisherEnv) { refusedAt(e, at) },
		})
	}
	return append(cases, []publisherCase{
		{name: "all messages of a call are refused", hazard: each, run: allRefused},
		{name: "a message that is too large is refused for good", hazard: each, run: oversize},
		{
			name: "an unroutable message is an error, and the others are confirmed", hazard: each, atomic: no,
			run: unroutable,
		},
		{name: "a topic that is missing is a TopicError, call after call", hazard: each, run: missingTopic},
		{
			name: "nothing of a call is published when one message is refused", hazard: each, atomic: yes,
			run: refusedTogether,
		},
		{
			name: "nothing of a key is published behind a refusal", hazard: "25: order within a key", ordered: true,
			run: refusedInKey,
		},
		{
			name: "unsafe settings are refused by name", hazard: "34: a client's defaults lose messages",
			run: unsafeSettings,
		},
	}...)
}

func (e *publisherEnv) five() (msgs []outbox.Message) {
	for i := range 5 {
		msgs = append(msgs, e.message(fmt.Sprint("m", i), fmt.Sprint("key", i)))
	}
	return msgs
}

// refusedAt publishes twice, because a refusal may break a publisher.
func refusedAt(e *publisherEnv, at int) {
	e.hook("Oversize", e.Oversize == nil)
	var confirmed []outbox.Message
	for round := range 2 {
		msgs := e.five()
		for i := range msgs {
			msgs[i] = e.message(fmt.Sprintf("m%d-%d", round, i), fmt.Sprint("key", i))
		}
		msgs[at] = e.Oversize(msgs[at])
		for i, err := range e.publish(e.ctx, msgs...) {
			switch {
			case i == at:
				e.wantPermanent(err)
			case err != nil:
				e.Errorf("message %d: %v, and only message %d is at fault", i+1, err, at+1)
			default:
				confirmed = append(confirmed, msgs[i])
			}
		}
	}
	e.wantArrived(confirmed...)
}

func (e *publisherEnv) wantPermanent(err error) {
	e.Helper()
	switch unavailable := new(outbox.UnavailableError); {
	case err == nil:
		e.Errorf("a message that must be refused was confirmed")
	case !outbox.IsPermanent(err):
		e.Errorf("a refusal that no repetition changes is not marked as permanent: %v", err)
	case errors.As(err, &unavailable):
		e.Errorf("a refused message is blamed on the broker: %v", err)
	}
}

func allRefused(e *publisherEnv) {
	e.hook("Oversize", e.Oversize == nil)
	msgs := e.five()
	for i := range msgs {
		msgs[i] = e.Oversize(msgs[i])
	}
	for _, err := range e.publish(e.ctx, msgs...) {
		e.wantPermanent(err)
	}
	after := e.message("after", "key0")
	e.confirm(after)
	e.wantArrived(after)
}

func oversize(e *publisherEnv) {
	e.hook("Oversize", e.Oversize == nil)
	e.wantPermanent(e.publish(e.ctx, e.Oversize(e.message("large", "k")))[0])
	after := e.message("after", "k")
	e.confirm(after)
	e.wantArrived(after)
}

func unroutable(e *publisherEnv) {
	e.hook("Unroutable", e.Unroutable == nil)
	nowhere := e.Unroutable(e.t)
	msgs := e.five()
	msgs[2].Topic = nowhere
	var confirmed []outbox.Message
	topic := new(outbox.TopicError)
	for i, err := range e.publish(e.ctx, msgs...) {
		switch unavailable := new(outbox.UnavailableError); {
		case i != 2 && err != nil:
			e.Errorf("message %d: %v, and only message 3 cannot be routed", i+1, err)
		case i != 2:
			confirmed = append(confirmed, msgs[i])
		case err == nil:
			e.Errorf("a message that goes nowhere was confirmed")
		case outbox.IsPermanent(err):
			e.Errorf("a topic may be created later, and its message is refused for good: %v", err)
		case !errors.As(err, &topic):
			e.Errorf("one topic that is missing would have all its messages parked, as the error is no TopicError: %v", err)
		case errors.As(err, &unavailable):
			e.Errorf("one topic that is missing would stop all others: %v", err)
		case !strings.Contains(err.Error(), nowhere):
			e.Errorf("the error does not name topic %q: %v", nowhere, err)
		}
	}
	e.wantArrived(confirmed...)
}

// missingTopic tries a missing topic several times, as a relay does. Each answer is a TopicError, and the publisher
// keeps working.
func missingTopic(e *publisherEnv) {
	e.hook("Unroutable", e.Unroutable == nil)
	nowhere := e.Unroutable(e.t)
	for i := range 5 {
		m := e.message(fmt.Sprint("probe", i), "k")
		m.Topic = nowhere
		err := e.publish(e.ctx, m)[0]
		switch topic, unavailable := new(outbox.TopicError), new(outbox.UnavailableError); {
		case err == nil:
			e.Errorf("a message that goes nowhere was confirmed")
		case !errors.As(err, &topic) || outbox.IsPermanent(err) || errors.As(err, &unavailable):
			e.Errorf("the error of a missing topic is no TopicError, or something else beside: %v", err)
		}
	}
	after := e.message("after", "k")
	e.confirm(after)
	e.wantArrived(after)
}

func refusedTogether(e *publisherEnv) {
	e.hook("Oversize", e.Oversize == nil)
	for at := range 5 {
		msgs := e.five()
		msgs[at] = e.Oversize(msgs[at])
		for i, err := range e.publish(e.ctx, msgs...) {
			switch {
			case i == at:
				e.wantPermanent(err)
			case err == nil:
				e.Errorf("message %d was confirmed, of a call in which message %d was refused", i+1, at+1)
			case !errors.Is(err, driver.ErrNotTried):
				e.Errorf("message %d is not at fault, and its error is no ErrNotTried: %v", i+1, err)
			}
		}
	}
	after := e.message("after", "k")
	e.confirm(after)
	e.wantArrived(after)
}

// refusedInKey refuses each position of one key in turn. The other key is not affected.
func refusedInKey(e *publisherEnv) {
	e.hook("Oversize", e.Oversize == nil)
	const n = 5
	var confirmed []outbox.Message
	for at := range n {
		var msgs []outbox.Message
		for i := range n {
			msgs = append(msgs, e.message(fmt.Sprintf("a%d-%d", at, i), "a"),
				e.message(fmt.Sprintf("b%d-%d", at, i), "b"))
		}
		msgs[2*at] = e.Oversize(msgs[2*at])
		for i, err := range e.publish(e.ctx, msgs...) {
			behind := i%2 == 0 && i > 2*at
			switch {
			case i == 2*at:
				e.wantPermanent(err)
			case behind && !errors.Is(err, driver.ErrNotTried):
				e.Errorf("message %d of a key whose message %d was refused: %v, want an ErrNotTried", i/2+1, at+1, err)
			case !behind && err != nil:
				e.Errorf("message %q: %v, and it is not behind the refused one", msgs[i].ID, err)
			case !behind:
				confirmed = append(confirmed, msgs[i])
			}
		}
	}
	e.wantArrived(confirmed...)
}

func unsafeSettings(e *publisherEnv) {
	e.hook("Unsafe", len(e.Unsafe) == 0)
	for _, u := range e.Unsafe {
		err := u.New(e.t)
		switch {
		case err == nil:
			e.Errorf("%s: a setting that loses messages was accepted", u.Setting)
		case !strings.Contains(err.Error(), u.Setting):
			e.Errorf("the error does not name %s: %v", u.Setting, err)
		default:
			e.Logf("%s is refused: %v", u.Setting, err)
		}
	}
}
