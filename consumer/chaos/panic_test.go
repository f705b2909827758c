package chaos_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/chaos"
	called "github.com/txonce/txonce/internal/deliver"
)

// breaking ends its calls from a certain one on, in the given way.
type breaking struct {
	calls, active atomic.Int64
	from          int64
	end           func()
}

func (b *breaking) Process(context.Context, *consumer.Message) error {
	b.active.Add(1)
	defer b.active.Add(-1)
	if b.calls.Add(1) >= b.from {
		b.end()
	}
	return nil
}

var errBroken = errors.New("broken")

func breaks() { panic(errBroken) }

// A panic of the Processor itself ends the call of the Subscriber, with its value and its stack, whichever delivery has
// it. No copy is still processed then.
func TestPanicOfTheProcessor(t *testing.T) {
	for seed := range uint64(20) {
		for from := range int64(2) {
			b := &breaking{from: from + 1, end: breaks}
			p := wrap(t, b, chaos.Config{Seed: seed + 1, Duplicate: 1})
			err := called.Call(t.Context(), p, []*consumer.Message{{ID: "m"}})[0]
			panicked, is := errors.AsType[*consumer.PanicError](err)
			if !is || !errors.Is(err, errBroken) || !strings.Contains(panicked.Error(), "chaos_test.breaks(") {
				t.Fatalf("seed %d, from call %d on: %v, want a *consumer.PanicError with value and stack", seed+1, from+1, err)
			}
			if n := b.active.Load(); n > 0 {
				t.Fatalf("seed %d: %d calls of the Processor are still active", seed+1, n)
			}
		}
	}
}

// The end of a goroutine, as by FailNow of a test, acknowledges nothing.
func TestTheProcessorEndsItsGoroutine(t *testing.T) {
	for seed := range uint64(20) {
		for from := range int64(2) {
			b := &breaking{from: from + 1, end: runtime.Goexit}
			p := wrap(t, b, chaos.Config{Seed: seed + 1, Duplicate: 1})
			err := called.Call(t.Context(), p, []*consumer.Message{{ID: "m"}})[0]
			if err == nil || !strings.Contains(err.Error(), "runtime.Goexit") || b.active.Load() > 0 {
				t.Fatalf("seed %d, from call %d on: %v, %d calls are active", seed+1, from+1, err, b.active.Load())
			}
		}
	}
}
