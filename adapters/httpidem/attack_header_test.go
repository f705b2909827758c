package httpidem_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/txonce/txonce/dedup/deduptest"
)

// TestAttackForeignReplayMark: a handler that passes on the response of another system, such as Stripe, must not mark its first response as a
// replay: Idempotent-Replayed says whether this Guard has run the handler.
func TestAttackForeignReplayMark(t *testing.T) {
	a := newAPI(t)
	h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Idempotent-Replayed", "true") // copied from Stripe's response
		w.WriteHeader(http.StatusCreated)
		return tx.Add("effect")
	})
	a.want(h, request{}, http.StatusCreated, false)
	a.want(h, request{}, http.StatusCreated, true)
	a.wantEffects(1)
}
