package consumer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// watchedStore records which claims are marked as redelivered.
type watchedStore struct {
	*deduptest.Store
	marked []bool
}

func (s *watchedStore) InTx(ctx context.Context, recs []dedup.Record,
	fn func(tx *deduptest.Tx, claims []dedup.Claim) error,
) error {
	for _, rec := range recs {
		s.marked = append(s.marked, rec.Redelivered)
	}
	return s.Store.InTx(ctx, recs, fn)
}

// A message is marked as redelivered if another delivery of it may have been handled, and not if its handler has failed
// here.
func TestRedeliveredClaims(t *testing.T) {
	store := &watchedStore{Store: deduptest.NewStore()}
	var fails error
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, RejectGivenUp: true, Key: consumer.MessageID,
		Handle: func(context.Context, *deduptest.Tx, *consumer.Message) error { return fails },
	})
	if err != nil {
		t.Fatal(err)
	}
	process := func(id string, attempt int) {
		c.ProcessBatch(t.Context(), []*consumer.Message{{ID: id, Attempt: attempt}})
	}
	process("new", 1)
	process("new", 2)
	fails = errors.New("fails")
	process("failing", 1)
	fails = nil
	process("failing", 2)
	if diff := cmp.Diff([]bool{false, true, false, false}, store.marked); diff != "" {
		t.Errorf("marked as redelivered (-want +got):\n%s", diff)
	}
}
