package sqlite

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A caller waits for a long queue that moves, and fails behind a writer that does not end.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 5 * time.Second
		turn := newWriterTurn(wait)
		began := time.Now()
		done := make(chan error)
		for range 10 { // each writes for 4 s, so the last one waits for 36 s
			go func() {
				leave, err := turn.enter(t.Context())
				if err == nil {
					<-time.After(4 * time.Second)
					leave()
				}
				done <- err
			}()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Errorf("while the queue moved: %v", err)
			}
		}
		if took := time.Since(began); took != 40*time.Second {
			t.Errorf("10 turns of 4 s took %v", took)
		}

		leave, err := turn.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if _, err := turn.enter(t.Context()); !errors.Is(err, errNoTurn) {
			t.Errorf("behind a holder that does not end: %v", err)
		}
		if took := time.Since(began); took != wait {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turn.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of ctx: %v", err)
		}
		leave()
		if leave, err = turn.enter(t.Context()); err != nil {
			t.Error(err)
		} else {
			leave()
		}
	})
}

// A process that recently met another writer pauses after each slice. A process alone does not pause.
func TestTurnStepsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := newWriterTurn(5 * time.Second)
		write := func(contended bool) (waited time.Duration) {
			began := time.Now()
			leave, err := turn.enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			waited = time.Since(began)
			if contended {
				turn.noteContention()
			}
			<-time.After(20 * time.Millisecond)
			leave()
			return waited
		}
		for i := range 20 {
			if waited := write(false); waited != 0 {
				t.Errorf("alone, turn %d waited %v", i, waited)
			}
		}
		write(true)
		var waits []int // in ms
		for range 10 {
			waits = append(waits, int(write(false).Milliseconds()))
		}
		if want := []int{0, 0, 3, 0, 0, 3, 0, 0, 3, 0}; !slices.Equal(waits, want) {
			t.Errorf("under contention turns waited %v ms, want %v", waits, want)
		}
		<-time.After(time.Second)
		for range 10 {
			if waited := write(false); waited != 0 {
				t.Errorf("long after the contention a turn waited %v", waited)
			}
		}
	})
}
