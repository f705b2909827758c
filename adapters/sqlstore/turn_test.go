package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
)

// A queue that moves may be long; a holder that does not end is an error.
func TestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const wait = 5 * time.Second
		turn := sqlstore.NewTurn(wait)
		began := time.Now()
		done := make(chan error)
		for range 10 { // each works for 4 s, so that the last waits for 36 s
			go func() {
				leave, err := turn.Enter(t.Context())
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

		leave, err := turn.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if _, err := turn.Enter(t.Context()); !errors.Is(err, sqlstore.ErrNoTurn) {
			t.Errorf("behind a holder that does not end: %v", err)
		}
		if took := time.Since(began); took != wait {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := turn.Enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of ctx: %v", err)
		}
		leave()
		if leave, err = turn.Enter(t.Context()); err != nil {
			t.Error(err)
		} else {
			leave()
		}
	})
}
