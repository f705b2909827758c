package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/usercode"
)

// batches is a faulty Consumer.
type batches struct {
	consumers
	day *day
}

// Process implements consumer.Processor.
func (b *batches) Process(ctx context.Context, msg *consumer.Message) error {
	return one(b.day.deliver(ctx, []*consumer.Message{msg}, each(b.consumers)))
}

// ProcessBatch implements driver.BatchProcessor.
func (b *batches) ProcessBatch(ctx context.Context, msgs []*consumer.Message) []error {
	return b.day.deliver(ctx, msgs, b.consumers.ProcessBatch)
}

// singles is a faulty Processor that takes one message at a time.
type singles struct {
	processor consumer.Processor
	day       *day
}

// Process implements consumer.Processor.
func (s *singles) Process(ctx context.Context, msg *consumer.Message) error {
	return one(s.day.deliver(ctx, []*consumer.Message{msg}, each(s.processor)))
}

func one(errs []error) error { return errs[0] }

// process processes messages, and answers each of them.
type process func(ctx context.Context, msgs []*consumer.Message) []error

func each(p consumer.Processor) process {
	return func(ctx context.Context, msgs []*consumer.Message) (errs []error) {
		for _, msg := range msgs {
			errs = append(errs, p.Process(ctx, msg))
		}
		return errs
	}
}

// deliver passes on a call, with faults.
func (d *day) deliver(ctx context.Context, msgs []*consumer.Message, p process) []error {
	f := d.draw(len(msgs))
	if err := sleep(ctx, f.delay); err != nil {
		return heldAll(len(msgs), err) // nothing was processed
	}
	if f.before {
		panic(f.death("before it processes its messages"))
	}
	errs := f.twice(ctx, msgs, p)
	if f.after {
		panic(f.death("after it has processed its messages"))
	}
	return f.loseAcks(msgs, errs)
}

// death is the value of a panic. It has what is needed to have the faults again.
func (f faults) death(when string) string {
	return fmt.Sprintf("chaos: the process dies %s (call %d of Config.Seed %d)", when, f.call, f.seed)
}

// twice processes the messages, those that are hit a second time. A message has succeeded if both have.
func (f faults) twice(ctx context.Context, msgs []*consumer.Message, p process) []error {
	copies := f.copies(msgs) // before the handler gets what the Subscriber delivered
	twins, positions := f.twins(msgs, copies)
	errs, answers := atOnce(ctx, msgs, twins, p)
	if len(errs) != len(msgs) || len(answers) != len(twins) {
		return errs // the Subscriber says what is wrong with it
	}
	errs = joined(slices.Clone(errs), positions, answers)
	var again []*consumer.Message
	positions = nil
	for i := range msgs {
		if f.messages[i].again && errs[i] == nil {
			again, positions = append(again, copies[i]), append(positions, i)
		}
	}
	if len(again) == 0 {
		return errs
	}
	return joined(errs, positions, p(ctx, again))
}

// atOnce processes msgs and twins at the same time, and returns when both are done. A panic of the Processor stays one,
// on this goroutine and with its value and its stack.
func atOnce(ctx context.Context, msgs, twins []*consumer.Message, p process) (errs, answers []error) {
	if len(twins) == 0 {
		return p(ctx, msgs), nil
	}
	done := make(chan *usercode.Ended, 1)
	go func() { done <- usercode.Run(func() { answers = p(ctx, twins) }) }()
	wait := sync.OnceValue(func() *usercode.Ended { return <-done })
	defer func() { _ = wait() }() // also if p panics
	errs = p(ctx, msgs)
	switch ended := wait(); {
	case ended == nil:
		return errs, answers
	case ended.Value == nil:
		panic(ended.Of("the Processor"))
	default:
		panic(&consumer.PanicError{Value: ended.Value, Stack: ended.Stack})
	}
}

// twins returns copies of the messages that are processed twice at the same time, and where they are among all. Only
// the first message of an ordering key can be one: another would overtake the messages before it.
func (f faults) twins(msgs, copies []*consumer.Message) (twins []*consumer.Message, positions []int) {
	seen := map[string]bool{}
	for i, msg := range msgs {
		if f.messages[i].twin && !seen[msg.OrderingKey] {
			twins, positions = append(twins, copies[i]), append(positions, i)
		}
		seen[msg.OrderingKey] = msg.OrderingKey != ""
	}
	return twins, positions
}

// copies returns copies of the messages that are hit, nil for the others. A broker that delivers a message again sends
// its bytes again, so a copy shares no memory with msg. Only Raw is the same.
func (f faults) copies(msgs []*consumer.Message) []*consumer.Message {
	copies := make([]*consumer.Message, len(msgs))
	for i, msg := range msgs {
		if !f.messages[i].again && !f.messages[i].twin {
			continue
		}
		c := *msg
		c.Payload, c.Headers, c.Aliases = bytes.Clone(msg.Payload), maps.Clone(msg.Headers), slices.Clone(msg.Aliases)
		if msg.Fingerprint != nil {
			fingerprint := *msg.Fingerprint
			c.Fingerprint = &fingerprint
		}
		copies[i] = &c
	}
	return copies
}

// joined adds the answers of copies. A failure of either is the message's, but a copy cannot make the Subscriber reject
// a message that has taken effect.
func joined(errs []error, positions []int, answers []error) []error {
	if len(answers) != len(positions) {
		answers = heldAll(len(positions), errors.New("chaos: the Processor has not answered each copy of a message"))
	}
	for i, at := range positions {
		if errs[at] == nil && answers[i] != nil {
			errs[at] = &consumer.RetryError{Err: answers[i], Held: true}
		}
	}
	return errs
}

// loseAcks turns answers of success into failures that are delivered again. The later messages of the ordering key are
// delivered again behind them, as the contract of BatchProcessor has it.
func (f faults) loseAcks(msgs []*consumer.Message, errs []error) []error {
	if len(errs) != len(msgs) {
		return errs
	}
	behind := map[string]bool{}
	for i, msg := range msgs {
		if errs[i] == nil && (f.messages[i].loseAck || behind[msg.OrderingKey]) {
			errs[i] = &consumer.RetryError{Err: ErrAckLost, Held: true}
		}
		if _, again := errors.AsType[*consumer.RetryError](errs[i]); again && msg.OrderingKey != "" {
			behind[msg.OrderingKey] = true
		}
	}
	return errs
}

func heldAll(n int, err error) (errs []error) {
	for range n {
		errs = append(errs, &consumer.RetryError{Err: err, Held: true})
	}
	return errs
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
