package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
)

// interleaves reports whether the handlers of the messages at places run side by side. Messages that have failed before do not,
// because they probably fail again, and that would cost the work of all others.
func (b *batch[TTx]) interleaves(answers []claimAnswer, places []int) bool {
	if b.c.forker == nil || len(places) < 2 || b.plain || b.c.plainly.now() {
		return false
	}
	for _, j := range places {
		if b.c.history.knows(answers[j].item.hash) {
			return false
		}
	}
	return true
}

// interleave runs the handlers of msgs side by side in tx. failed is the place in msgs of the message whose handler failed first, or -1.
func (b *batch[TTx]) interleave(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) (failed int, err error) {
	order := make([]string, len(msgs))
	handlers := make([]func(context.Context, TTx) error, len(msgs))
	for k, msg := range msgs {
		order[k] = msg.OrderingKey
		handlers[k] = func(ctx context.Context, tx TTx) error { // Fork recovers no panics; handle does
			return b.c.handle(ctx, tx, msgs[k:k+1], keys[k:k+1])
		}
	}
	failed = -1
	err = onOwnGoroutine("the handler", func() (err error) {
		failed, err = b.c.forker.Fork(ctx, tx, order, handlers)
		return err
	})
	return failed, err
}

// interleaved records how a transaction whose handlers ran side by side has ended, after took.
func (b *batch[TTx]) interleaved(ctx context.Context, err error, took time.Duration) {
	switch {
	case err == nil:
		b.c.plainly.succeeded()
	case ctx.Err() == nil:
		b.plain = true
		b.c.plainly.failed(took)
	}
}

// plainly stops the handlers from running side by side after that has failed, because everything is then done twice. The first failure
// stops it for the rest of the pass, and for as long as the failed transaction took. Each further failure in a row doubles that time.
type plainly struct {
	mu    sync.Mutex
	times uint // failures in a row
	until time.Time
}

// plainlyMost is the longest time without interleaving that one failure causes.
const plainlyMost = time.Minute

func (p *plainly) now() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.until)
}

func (p *plainly) failed(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Now().Add(min(took<<min(p.times, 16), plainlyMost))
	p.times++
}

func (p *plainly) succeeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = 0
}
