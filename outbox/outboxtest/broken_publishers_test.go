package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func brokenPublishers() []brokenPublisher {
	var positions []string
	for i := range 5 {
		positions = append(positions, fmt.Sprintf("the others are confirmed when message %d of 5 is refused", i+1))
	}
	positions = slices.Clip(positions)
	const (
		arrives    = "a confirmed message is in the broker"
		large      = "a message that is too large is refused for good"
		unroutable = "an unroutable message is an error, and the others are confirmed"
		missing    = "a topic that is missing is a TopicError, call after call"
		together   = "nothing of a call is published when one message is refused"
		behind     = "nothing of a key is published behind a refusal"
		fields     = "ID, key, headers and payload arrive"
		silent     = "Publish returns by the deadline from a broker that does not answer"
		away       = "a broker that is away is unavailable, and comes back"
		past       = "nothing is confirmed after the deadline that is not in the broker"
		ended      = "Publish returns when ctx is cancelled"
	)
	return []brokenPublisher{
		{
			name: "confirms everything", found: append(positions, "all messages of a call are refused", large,
				unroutable, silent, away, past, ended),
			breaks: each(func(outbox.Message, error) error { return nil }),
		},
		{
			name: "fails a call as a whole", found: append(positions, unroutable),
			breaks: answers(func(_ []outbox.Message, errs []error) []error {
				if err := errors.Join(errs...); err != nil {
					for i := range errs {
						errs[i] = err
					}
				}
				return errs
			}),
		},
		{
			name: "stops at the first refusal and says nothing of the rest", found: positions[:4],
			breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
				return func(ctx context.Context, msgs []outbox.Message) []error {
					errs := make([]error, len(msgs))
					for i := range msgs {
						if answer := fake.Publish(ctx, msgs[i:i+1]); answer != nil {
							errs[i] = answer[0]
							break
						}
					}
					return errs
				}
			},
		},
		{
			name: "answers in another order", found: append(positions[:2:2], positions[3:]...),
			breaks: answers(func(_ []outbox.Message, errs []error) []error { slices.Reverse(errs); return errs }),
		},
		{
			name: "answers for errors only", found: append(positions, unroutable),
			breaks: answers(func(_ []outbox.Message, errs []error) []error {
				return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
			}),
		},
		{
			name:  "a refused message sticks in the producer",
			found: []string{positions[0], "all messages of a call are refused", large},
			breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
				var stuck error
				return func(ctx context.Context, msgs []outbox.Message) []error {
					errs := fake.Publish(ctx, msgs)
					if stuck != nil {
						return slices.Repeat([]error{stuck}, len(msgs))
					}
					stuck = errors.Join(errs...)
					return errs
				}
			},
		},
		{
			name: "loses one in seven", found: []string{arrives, "concurrent calls", "1,000 messages in one call"},
			breaks: losing(7),
		},
		{name: "publishes everything twice", found: []string{arrives}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				_ = fake.Publish(ctx, msgs)
				return fake.Publish(ctx, msgs)
			}
		}},
		{name: "takes 500 at once", found: []string{"1,000 messages in one call"}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				return fake.Publish(ctx, msgs[:min(len(msgs), 500)])
			}
		}},
		{name: "answers for what it was not given", found: []string{"a call without messages"}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				if len(msgs) == 0 {
					return []error{errors.New("nothing to publish")}
				}
				return fake.Publish(ctx, msgs)
			}
		}},
		{name: "one call at a time, others are forgotten", found: []string{"concurrent calls"}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			var busy sync.Mutex
			fake.Decide = func(outbox.Message) Fate { return Fate{Delay: time.Millisecond} }
			return func(ctx context.Context, msgs []outbox.Message) []error {
				if !busy.TryLock() {
					return nil
				}
				defer busy.Unlock()
				return fake.Publish(ctx, msgs)
			}
		}},
		{name: "forgets the message's own headers", found: []string{fields, "binary header values arrive"}, breaks: sends(func(m *outbox.Message) {
			maps.DeleteFunc(m.Headers, func(name, _ string) bool { return !strings.HasPrefix(name, "txonce-") })
		})},
		{name: "drops what has a known ID", found: []string{"two messages with one ID arrive"}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			var mu sync.Mutex
			known := map[string]bool{}
			return func(ctx context.Context, msgs []outbox.Message) []error {
				mu.Lock()
				defer mu.Unlock()
				fresh := slices.DeleteFunc(slices.Clone(msgs), func(m outbox.Message) bool { return known[m.ID] })
				for _, m := range fresh {
					known[m.ID] = true
				}
				if len(fresh) == len(msgs) {
					return fake.Publish(ctx, msgs)
				}
				return make([]error, len(msgs))
			}
		}},
		{name: "forgets the ID", found: []string{fields}, breaks: sends(func(m *outbox.Message) { delete(m.Headers, outbox.HeaderID) })},
		{
			name: "forgets the key", found: []string{fields, "order within a key over successive calls"},
			breaks: sends(func(m *outbox.Message) { m.OrderingKey = "" }),
		},
		{name: "cuts payloads", found: []string{fields}, breaks: sends(func(m *outbox.Message) { m.Payload = m.Payload[:min(len(m.Payload), 1000)] })},
		{name: "gives a key to what has none", found: []string{"messages without key arrive"}, breaks: sends(func(m *outbox.Message) {
			if m.OrderingKey == "" {
				m.OrderingKey = "none"
			}
		})},
		{name: "an empty payload is null", found: []string{"an empty payload arrives"}, breaks: sends(func(m *outbox.Message) {
			if len(m.Payload) == 0 {
				m.Payload = []byte("null")
			}
		})},
		{
			name: "takes keys for text", found: []string{"a binary key arrives"},
			breaks: sends(func(m *outbox.Message) { m.OrderingKey = text(m.OrderingKey) }),
		},
		{name: "takes header values for text", found: []string{"binary header values arrive"}, breaks: sends(func(m *outbox.Message) {
			for name, value := range m.Headers {
				m.Headers[name] = text(value)
			}
		})},
		{name: "adds to the caller's headers", found: []string{"Publish leaves the messages as they are"}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				defer func() {
					for _, m := range msgs {
						m.Headers["traceparent"] = "x"
					}
				}()
				return fake.Publish(ctx, msgs)
			}
		}},
		{name: "calls pass each other", found: []string{"order within a key over successive calls"}, breaks: passing},
		{name: "turns calls around", atomic: true, found: []string{"order within a key in one call"}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				msgs = slices.Clone(msgs)
				slices.Reverse(msgs)
				errs := fake.Publish(ctx, msgs)
				slices.Reverse(errs)
				return errs
			}
		}},
		{name: "a refusal may be tried again", found: append(positions, large, "all messages of a call are refused"), breaks: each(func(_ outbox.Message, err error) error {
			if outbox.IsPermanent(err) {
				return errors.New(err.Error())
			}
			return err
		})},
		{name: "a refusal is the broker's fault", found: []string{large}, breaks: each(func(_ outbox.Message, err error) error {
			if outbox.IsPermanent(err) {
				return &outbox.UnavailableError{Err: err}
			}
			return err
		})},
		{name: "a topic that is missing is for good", found: []string{unroutable}, breaks: each(func(m outbox.Message, err error) error {
			if m.Topic == "nowhere" {
				return outbox.Permanent(err)
			}
			return err
		})},
		{name: "a topic that is missing is the broker's fault", found: []string{unroutable}, breaks: each(func(m outbox.Message, err error) error {
			if m.Topic == "nowhere" {
				return &outbox.UnavailableError{Err: err}
			}
			return err
		})},
		{name: "a topic that is missing counts against its messages", found: []string{unroutable, missing}, breaks: each(func(m outbox.Message, err error) error {
			if m.Topic == "nowhere" {
				return fmt.Errorf("no topic %s", m.Topic)
			}
			return err
		})},
		{name: "does not say which topic is missing", found: []string{unroutable}, breaks: each(func(m outbox.Message, err error) error {
			if m.Topic == "nowhere" {
				return &outbox.TopicError{Err: errors.New("unknown topic")}
			}
			return err
		})},
		{name: "is not all-or-nothing", atomic: true, found: []string{together}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) (errs []error) {
				for i := range msgs {
					if answer := fake.Publish(ctx, msgs[i:i+1]); answer != nil {
						errs = append(errs, answer...)
					} else {
						errs = append(errs, nil)
					}
				}
				return errs
			}
		}},
		{name: "goes on behind a refusal", ordered: true, found: []string{behind}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			each := &FakePublisher{Decide: fake.Decide}
			return func(ctx context.Context, msgs []outbox.Message) []error {
				errs := each.Publish(ctx, msgs)
				fake.published = append(fake.published, each.Published()...)
				each.published = nil
				failed := false
				for i := range errs { // its answers look right
					if failed && msgs[i].OrderingKey == "a" {
						errs[i] = driver.ErrNotTried
					}
					failed = failed || outbox.IsPermanent(errs[i])
				}
				return errs
			}
		}},
		{name: "stops all keys behind a refusal", ordered: true, found: []string{behind}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				errs := make([]error, len(msgs))
				for i := range msgs {
					if i > 0 && errs[i-1] != nil {
						errs[i] = driver.ErrNotTried
					} else if answer := fake.Publish(ctx, msgs[i:i+1]); answer != nil {
						errs[i] = answer[0]
					}
				}
				return errs
			}
		}},
		{name: "blames the messages behind a refusal", ordered: true, found: []string{behind}, breaks: each(func(_ outbox.Message, err error) error {
			if errors.Is(err, driver.ErrNotTried) {
				return errors.New("the batch was refused")
			}
			return err
		})},
		{name: "blames all for one", atomic: true, found: []string{together}, breaks: each(func(_ outbox.Message, err error) error {
			if errors.Is(err, driver.ErrNotTried) {
				return errors.New("the transaction was aborted")
			}
			return err
		})},
		{name: "accepts unsafe settings", found: []string{"unsafe settings are refused by name"}, harness: func(h *PublisherHarness, _ *FakePublisher) {
			h.Unsafe = append(h.Unsafe, Unsafe{"Idempotent", func(*testing.T) error { return nil }})
		}},
		{name: "does not name the unsafe setting", found: []string{"unsafe settings are refused by name"}, harness: func(h *PublisherHarness, _ *FakePublisher) {
			h.Unsafe = append(h.Unsafe, Unsafe{"Idempotent", func(*testing.T) error { return errors.New("bad config") }})
		}},
		{name: "does not look at ctx", found: []string{silent}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				return fake.Publish(context.WithoutCancel(ctx), msgs)
			}
		}},
		{name: "tells what it gave up on a minute later", found: []string{silent, past, ended}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			return func(ctx context.Context, msgs []outbox.Message) []error {
				errs := fake.Publish(ctx, msgs)
				if ctx.Err() != nil {
					<-time.After(time.Minute)
				}
				return errs
			}
		}},
		{name: "confirms what it gave up on", found: []string{past, ended, silent}, breaks: each(func(_ outbox.Message, err error) error {
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})},
		{name: "parks what it had no time for", found: []string{past, ended, silent}, breaks: each(func(_ outbox.Message, err error) error {
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				return outbox.Permanent(err)
			}
			return err
		})},
		{name: "blames the message when the broker is away", found: []string{away}, breaks: each(func(_ outbox.Message, err error) error {
			if u := new(outbox.UnavailableError); errors.As(err, &u) {
				return u.Err
			}
			return err
		})},
		{name: "does not come back", found: []string{away}, breaks: func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
			var dead bool
			return func(ctx context.Context, msgs []outbox.Message) []error {
				if u := new(outbox.UnavailableError); errors.As(errors.Join(fake.Publish(ctx, msgs)...), &u) {
					dead = true
				}
				if dead {
					return slices.Repeat([]error{&outbox.UnavailableError{Err: errors.New("down")}}, len(msgs))
				}
				return nil
			}
		}},
	}
}

// losing confirms each message before it is in the broker, and forgets one in n.
func losing(n int64) func(*FakePublisher) func(context.Context, []outbox.Message) []error {
	return func(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
		var count atomic.Int64
		return func(ctx context.Context, msgs []outbox.Message) []error {
			var kept []outbox.Message
			for _, m := range msgs {
				if count.Add(1)%n != 0 {
					kept = append(kept, m)
				}
			}
			_ = fake.Publish(ctx, kept)
			return nil
		}
	}
}

// passing confirms every other call at once, and sends its messages after those of the next call.
func passing(fake *FakePublisher) func(context.Context, []outbox.Message) []error {
	var kept []outbox.Message
	calls := 0
	return func(ctx context.Context, msgs []outbox.Message) []error {
		if calls++; calls%2 == 1 {
			kept = msgs
			return nil
		}
		errs := fake.Publish(ctx, msgs)
		_ = fake.Publish(ctx, kept)
		return errs
	}
}
