package pgxstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A relay that is started before the migrations reports that and ends. It does not wait as it does for a database that
// is down.
func TestOutboxRelayWithoutSchema(t *testing.T) {
	store := newStore(t, pgxstore.Config{Pool: testPool(t, testdb.Schema(t, testdb.Postgres(t)), 4)})
	r, err := relay.New(relay.Config{Queue: store, Publisher: new(outboxtest.FakePublisher)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "pgxstore.Migrate") {
		t.Errorf("Run = %v, want ErrSchema that says what to do", err)
	}
}
