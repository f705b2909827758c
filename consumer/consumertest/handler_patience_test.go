package consumertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// A handler whose transaction is always lost fails the test and says why: it must not run until go test's timeout.
func TestHandlerThatLosesItsTransactionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		h := handlerTest(store, store.Database(), func(ctx context.Context, tx tx, m *consumer.Message) error {
			return tx.Fail(errors.New("relation charges does not exist"))
		})
		failed := consumertest.FailedHandlerCases(t, h)
		for _, name := range []string{"delivered twice", "delivered twice in one batch", "concurrent twin"} {
			if said := failed[name]; !strings.Contains(said, "relation charges does not exist") {
				t.Errorf("%s says %q", name, said)
			}
		}
	})
}
