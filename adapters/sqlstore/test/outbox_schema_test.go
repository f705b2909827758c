package sqlstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// A relay that is started before the migrations fails at once with a clear error. It must not wait as if the database
// were unavailable.
func TestOutboxRelayWithoutSchema(t *testing.T) {
	db := openDB(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "empty.db")+
		"?_pragma=journal_mode(wal)&_pragma=busy_timeout(10000)&_txlock=immediate")
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		t.Fatal(err)
	}
	r, err := relay.New(relay.Config{Queue: store, Publisher: new(outboxtest.FakePublisher)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := r.Run(ctx); !errors.Is(err, driver.ErrSchema) || !strings.Contains(err.Error(), "migrations.Apply") {
		t.Errorf("Run = %v, want ErrSchema that says what to do", err)
	}
}
