package consumer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/txonce/txonce/consumer/internal/decide"
	"github.com/txonce/txonce/dedup"
)

// WholePayload is the default of Config.Fingerprint.
var WholePayload = wholePayload

// Reports counts the reports of a pause.
type Reports struct {
	mu       *sync.Mutex // guards the reported state
	Told     []string
	Unlocked int // reports that were not made under mu
	Locked   int // reports that were told under mu
}

// Failing implements reporter.
func (r *Reports) Failing(_ context.Context, loud bool, _ error, _ ...any) (tell func()) {
	return r.report(fmt.Sprint("failing ", loud))
}

// Working implements reporter.
func (r *Reports) Working(context.Context) (tell func()) { return r.report("working") }

func (r *Reports) report(what string) (tell func()) {
	if r.mu.TryLock() {
		r.mu.Unlock()
		r.Unlocked++
	}
	return func() {
		if r.mu.TryLock() {
			r.mu.Unlock()
		} else {
			r.Locked++
		}
		r.Told = append(r.Told, what)
	}
}

// ReportFaults returns what is reported of three faults of the database and two commits.
func ReportFaults(ctx context.Context, err error) *Reports {
	p := &pause{backoff: func(int) time.Duration { return 0 }}
	r := &Reports{mu: &p.mu}
	p.report = r
	for range 3 {
		p.fault(ctx, err, ofClaims, p.epoch(), 1)
	}
	p.recovered(ctx, ofClaims)
	p.recovered(ctx, ofClaims)
	return r
}

// ReportBudget returns what is reported when a budget of one message is spent, a message is turned away, and a minute
// later handlers succeed. Call it in a synctest bubble.
func ReportBudget(ctx context.Context, err error) *Reports {
	b := newParkBudget(ParkLimit{Burst: 1, PerMinute: 1}, nil)
	r := &Reports{mu: &b.mu}
	b.report = r
	b.take(ctx, err)
	b.take(ctx, err)
	_, _, _ = b.admit(ctx)
	for range 2 {
		<-time.After(time.Minute)
		if probe, _, _ := b.admit(ctx); probe {
			b.settle(succeeded)
		}
	}
	return r
}

// KeysInUse is how many keys the consumer remembers.
func (c *Consumer[TTx]) KeysInUse() int {
	c.memory.mu.Lock()
	defer c.memory.mu.Unlock()
	return len(c.memory.keys)
}

// MemoryOf returns how many failed messages are remembered, and whether a message that was in doubt before still is,
// after n messages with different keys have failed.
func MemoryOf(n int) (pasts int, doubtful bool) {
	var m memory
	key := func(id string) dedup.KeyHash { return dedup.Key{Consumer: "billing", ID: id}.Hash() }
	m.addDoubt(key("doubt"), doubt{})
	m.survived(key("doubt"))
	for i := range n {
		m.judge(key(strconv.Itoa(i)), decide.Failure{}, decide.Now{MaxAttempts: 3})
	}
	_, doubtful = m.doubt(key("doubt"))
	return m.pasts, doubtful
}
