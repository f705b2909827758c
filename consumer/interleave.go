package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/txonce/txonce/dedup"
)

// interleaves reports whether the handlers of the messages are interleaved. Messages that have failed before do not,
// because they probably fail again, and that would cost the work of all others.
func (a *attempt[TTx]) interleaves() bool {
	b := a.b
	if b.c.interleaver == nil || len(a.first) < 2 || a.plain {
		return false
	}
	return !slices.ContainsFunc(a.first, func(j int) bool { return b.c.memory.past(a.item(j).hash).Known() })
}

// interleave interleaves the handlers of msgs in tx.
func (a *attempt[TTx]) interleave(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) error {
	a.ran, a.interleaved = a.first, true
	order := make([]string, len(msgs))
	handlers := make([]func(context.Context, TTx) error, len(msgs))
	for k, msg := range msgs {
		order[k] = msg.OrderingKey
		handlers[k] = func(ctx context.Context, tx TTx) error { // Interleave recovers no panics; handle does
			return a.b.c.cfg.handle(ctx, tx, msgs[k:k+1], keys[k:k+1])
		}
	}
	failed := -1
	err := onOwnGoroutine("the handler", func() (err error) {
		failed, err = a.b.c.interleaver.Interleave(ctx, tx, order, handlers)
		return err
	})
	if failed >= 0 {
		a.culprits = a.first[failed : failed+1]
		if errors.Is(err, dedup.ErrTxEnded) {
			a.complete = a.first[:failed]
		}
	}
	return err
}

// plainly lets handlers run one after the other for a while after Interleave has failed, because everything is then
// done twice. The first failure stops it for the rest of the pass, and for as long as the failed transaction took. Each
// further failure in a row doubles that time.
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
