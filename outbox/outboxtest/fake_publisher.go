package outboxtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// FakePublisher is a broker and its publisher in memory, for tests. Its zero value confirms everything. It is safe for
// concurrent use.
type FakePublisher struct {
	// Decide says what happens to a message, once for each of its publications. Several calls may run at once. Set it
	// before use.
	//
	// Defaults to the zero Fate.
	Decide func(outbox.Message) Fate
	// AllOrNothing makes it an driver.AtomicPublisher whose Atomic is true. Set it before use.
	AllOrNothing bool
	// InOrder makes it an driver.OrderedPublisher whose Ordered is true: it publishes one message after another. Set it
	// before use.
	InOrder bool

	mu        sync.Mutex
	published []Published
	down      error
	after     time.Duration
}

var (
	_ driver.AtomicPublisher  = (*FakePublisher)(nil)
	_ driver.OrderedPublisher = (*FakePublisher)(nil)
)

// Fate is what happens to one publication. The zero value: it arrives and is confirmed.
type Fate struct {
	Delay time.Duration // before anything happens; the deadline of the call ends it
	Err   error         // the answer; without Lost the message does not arrive
	Lost  bool          // it arrives, but its confirmation does not: the answer is Err, or ErrAnswerLost
}

// ErrAnswerLost is the answer for a message that arrived and whose confirmation was lost.
var ErrAnswerLost = errors.New("outboxtest: the answer was lost")

// Published is one message that arrived.
type Published struct {
	outbox.Message
	Confirmed bool // the publisher got the confirmation
	At        time.Time
}

// Publish implements outbox.Publisher.
func (f *FakePublisher) Publish(ctx context.Context, msgs []outbox.Message) []error {
	fates, errs := make([]Fate, len(msgs)), make([]error, len(msgs))
	var waits time.Duration
	for i, m := range msgs {
		if f.Decide != nil {
			fates[i] = f.Decide(m)
		}
		waits = max(waits, fates[i].Delay)
	}
	switch {
	case f.AllOrNothing:
		f.publishAll(ctx, msgs, fates, waits, errs)
	case f.InOrder:
		f.publishInOrder(ctx, msgs, fates, errs)
	default:
		f.publishEach(ctx, msgs, fates, errs)
	}
	if slices.IndexFunc(errs, func(err error) bool { return err != nil }) < 0 {
		return nil
	}
	return errs
}

// publishEach lets messages without delay arrive at once, in their order.
func (f *FakePublisher) publishEach(ctx context.Context, msgs []outbox.Message, fates []Fate, errs []error) {
	var late sync.WaitGroup
	for i := range msgs {
		if fates[i].Delay > 0 {
			late.Go(func() { errs[i] = f.publish(ctx, msgs[i], fates[i]) })
		} else {
			errs[i] = f.publish(ctx, msgs[i], fates[i])
		}
	}
	late.Wait()
}

// publishInOrder publishes nothing of a key behind a failure.
func (f *FakePublisher) publishInOrder(ctx context.Context, msgs []outbox.Message, fates []Fate, errs []error) {
	failed := map[string]string{} // the IDs of failed messages by key
	for i, m := range msgs {
		if id, behind := failed[m.OrderingKey]; behind {
			errs[i] = fmt.Errorf("%w: message %q", driver.ErrNotTried, id)
			continue
		}
		if errs[i] = f.publish(ctx, m, fates[i]); errs[i] != nil && m.OrderingKey != "" {
			failed[m.OrderingKey] = m.ID
		}
	}
}

func (f *FakePublisher) publish(ctx context.Context, m outbox.Message, fate Fate) error {
	if err := await.Sleep(ctx, fate.Delay); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return f.unavailable()
	}
	if fate.Err != nil && !fate.Lost {
		return fate.Err
	}
	f.arrive(m, !fate.Lost)
	return fate.answer()
}

func (f *FakePublisher) publishAll(ctx context.Context, msgs []outbox.Message, fates []Fate, delay time.Duration,
	errs []error,
) {
	err := await.Sleep(ctx, delay)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.down != nil {
		err = f.unavailable()
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	if at := slices.IndexFunc(fates, func(f Fate) bool { return f.Err != nil && !f.Lost }); at >= 0 {
		for i := range msgs {
			if errs[i] = fates[i].Err; errs[i] == nil || fates[i].Lost {
				errs[i] = fmt.Errorf("%w: message %q", driver.ErrNotTried, msgs[at].ID)
			}
		}
		return
	}
	for i, m := range msgs {
		f.arrive(m, !fates[i].Lost)
		errs[i] = fates[i].answer()
	}
}

// answer returns the answer for a message that has arrived.
func (f Fate) answer() error {
	if f.Lost && f.Err == nil {
		return ErrAnswerLost
	}
	return f.Err
}

func (f *FakePublisher) arrive(m outbox.Message, confirmed bool) {
	m.Payload, m.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
	f.published = append(f.published, Published{Message: m, Confirmed: confirmed, At: time.Now()})
}

// Atomic implements driver.AtomicPublisher.
func (f *FakePublisher) Atomic() bool { return f.AllOrNothing }

// Ordered implements driver.OrderedPublisher.
func (f *FakePublisher) Ordered() bool { return f.InOrder }

// Published returns the messages that arrived, in their order, with every repeat.
func (f *FakePublisher) Published() []Published {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.published)
}

// Confirmed returns the IDs of the confirmed messages, in their order, with every repeat.
func (f *FakePublisher) Confirmed() (ids []string) {
	for _, p := range f.Published() {
		if p.Confirmed {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// Down makes each answer an outbox.UnavailableError with this After, until Up is called.
func (f *FakePublisher) Down(after time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down, f.after = errors.New("outboxtest: the broker is down"), after
}

// Up ends Down.
func (f *FakePublisher) Up() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = nil
}

func (f *FakePublisher) unavailable() error {
	return &outbox.UnavailableError{After: f.after, Err: f.down}
}
