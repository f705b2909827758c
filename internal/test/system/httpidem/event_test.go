package httpidem_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup/deduptest"
)

// events gathers the events of a node.
type events struct {
	mu  sync.Mutex
	all []httpidem.Event
}

func (es *events) trace() *httpidem.Trace {
	add := func(_ context.Context, e httpidem.Event) {
		es.mu.Lock()
		defer es.mu.Unlock()
		es.all = append(es.all, e)
	}
	return &httpidem.Trace{Committed: add, Recorded: add, Unstored: add, Replayed: add, Refused: add, Panicked: add}
}

func (es *events) last() httpidem.Event {
	es.mu.Lock()
	defer es.mu.Unlock()
	return es.all[len(es.all)-1]
}

// A replay has the age of its key, and a process that peeks knows what another one has answered.
func TestAgeAndPeek(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		t.Parallel()
		dsn := e.Create(t)
		var seen events
		one, other := e.node(t, dsn, settings{}), e.node(t, dsn, settings{trace: seen.trace()})
		q := request{body: "x"}
		peek := func(want bool) {
			t.Helper()
			if repeat, err := other.peek(q.make(t.Context())); repeat != want || err != nil {
				t.Errorf("Peek: %t, %v; want %t", repeat, err, want)
			}
		}
		peek(false)
		if w := untilAnswered(t, one.handle(e.order), q); w.Code != http.StatusCreated {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		peek(true)
		if w := untilAnswered(t, other.handle(e.order), q); !isReplay(w) {
			t.Fatalf("status %d, no replay", w.Code)
		}
		if got := seen.last(); got.Decision != httpidem.Replayed || got.Age < 0 || got.Age > time.Minute || got.InDoubt {
			t.Errorf("%s, age %v, in doubt %t", got.Decision, got.Age, got.InDoubt)
		}
	})
}

// The answer to COMMIT is lost, or COMMIT never arrives: the request was in doubt.
func TestInDoubt(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		if e.Faulty == nil {
			t.Skip("no connection lies between the store and its file, so a COMMIT has no answer to lose")
		}
		for _, fault := range []deduptest.Fault{deduptest.CommitLost, deduptest.AnswerLost} {
			t.Run(fault.String(), func(t *testing.T) {
				t.Parallel()
				dsn := e.Create(t)
				var seen events
				n := e.node(t, e.Faulty(t, dsn, fault), settings{wait: 10 * time.Second, trace: seen.trace()})
				w := serve(n.handle(e.order), request{body: "x"}.make(t.Context()))
				if got := seen.last(); !got.InDoubt {
					t.Errorf("status %d, %s, in doubt %t", w.Code, got.Decision, got.InDoubt)
				}
				untilAnswered(t, n.handle(e.order), request{key: "next", body: "x"})
				if got := seen.last(); got.InDoubt {
					t.Errorf("the next request is in doubt, too: %s", got.Decision)
				}
			})
		}
	})
}
