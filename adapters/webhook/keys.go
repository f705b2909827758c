package webhook

import (
	"fmt"
	"sync/atomic"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
)

// firstKey finds out whether the Processor can find keys at all. A Config.Key for another source, such as a JSONKey of
// the worker's messages, finds none in any event: each would be parked as no_key, and answered with 200. A Key that
// needs no more than what each event has, such as consumer.MessageID, is right from the start. A Key that reads
// payloads is right as soon as it has found the key of one event.
type firstKey struct {
	keyed driver.Keyed // nil: the Processor does not say
	found atomic.Bool
}

func newFirstKey(processor any) *firstKey {
	f := &firstKey{}
	if f.keyed, _ = processor.(driver.Keyed); f.keyed != nil {
		_, err := f.keyed.KeyFor(&consumer.Message{Topic: "any", ID: "any"})
		f.found.Store(err == nil)
	}
	return f
}

// check returns an error until the Processor has found a key. After that, an event without a key is parked.
func (f *firstKey) check(msgs []*consumer.Message) error {
	if f.keyed == nil || f.found.Load() {
		return nil
	}
	var first error
	for _, msg := range msgs {
		_, err := f.keyed.KeyFor(msg)
		if err == nil {
			f.found.Store(true)
			return nil
		}
		if first == nil {
			first = fmt.Errorf("the consumer's Config.Key has not found the key of any event yet: set it to consumer.MessageID, or to a function that "+
				"uses Message.ID; event %q: %w", msg.ID, err)
		}
	}
	return first
}
