package adapt_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/migrations"
)

// orderPlaced is the message.
type orderPlaced struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// openExample opens a database that has txonce's tables and the application's table charges.
func openExample() (db *sql.DB, store *sqlstore.Store, remove func()) {
	ctx := context.Background()
	slog.SetLogLoggerLevel(slog.LevelError)
	dir, err := os.MkdirTemp("", "adapt")
	if err != nil {
		panic(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)")
	if err != nil {
		panic(err)
	}
	if err := migrations.Apply(ctx, db, "sqlite", ""); err != nil {
		panic(err)
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE charges (order_id TEXT NOT NULL, cents BIGINT NOT NULL)`); err != nil {
		panic(err)
	}
	store, err = sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		panic(err)
	}
	return db, store, func() { db.Close(); os.RemoveAll(dir) }
}

// deliverTwice delivers the same message twice.
func deliverTwice(to consumer.Processor) {
	for range 2 {
		msg := consumer.Message{
			Topic: "orders", Payload: []byte(`{"order_id":"order-42","cents":1999}`),
			Time: time.Now(),
		}
		if err := to.Process(context.Background(), &msg); err != nil {
			panic(err)
		}
	}
}

func pending(s *sqlstore.Store) int64 {
	stats, err := s.Outbox().Stats(context.Background())
	if err != nil {
		panic(err)
	}
	return stats.Pending
}
