package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// openExample opens a database with txonce's tables and one of the application's own.
func openExample(ctx context.Context) (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "sqlstore")
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
	if _, err := db.ExecContext(ctx, `CREATE TABLE charges (order_id TEXT, cents INTEGER)`); err != nil {
		panic(err)
	}
	return db, func() { db.Close(); os.RemoveAll(dir) }
}

// A message is delivered twice, and charged once: the claim and the charge are one transaction.
func ExampleStore_InTx() {
	ctx := context.Background()
	db, remove := openExample(ctx)
	defer remove()
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		panic(err)
	}
	message := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "order-42:paid"}, Time: time.Now()}
	for range 2 {
		err := store.InTx(ctx, []dedup.Record{message}, func(tx *sql.Tx, claims []dedup.Claim) error {
			fmt.Println(claims[0].Verdict)
			if claims[0].Verdict != dedup.First {
				return nil
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO charges (order_id, cents) VALUES ('order-42', 1999)`)
			return err
		})
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// first
	// duplicate
}

// Programs that own their transaction claim in it. What rolls back was never claimed.
func ExampleStore_Claim() {
	ctx := context.Background()
	db, remove := openExample(ctx)
	defer remove()
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		panic(err)
	}
	charge := func(fail bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		claims, err := store.Claim(ctx, tx, []dedup.Record{{Key: dedup.Key{Consumer: "billing", ID: "order-42:paid"}}})
		if err != nil {
			return err
		}
		fmt.Println(claims[0].Verdict)
		if fail {
			return errors.New("card declined")
		}
		return tx.Commit()
	}
	fmt.Println(charge(true))
	fmt.Println(charge(false))
	fmt.Println(charge(false))
	// Output:
	// first
	// card declined
	// first
	// <nil>
	// duplicate
	// <nil>
}

// Register says at start what would otherwise fail, or be lost, later.
func ExampleConfig() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqlstore")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	hasty, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
	if err != nil {
		panic(err)
	}
	defer hasty.Close()
	for _, cfg := range []sqlstore.Config{
		{DB: hasty, Dialect: sqlstore.SQLite},
		{DB: hasty, Dialect: sqlstore.SQLite, AllowAsyncCommit: true},
	} {
		store, err := sqlstore.New(cfg)
		if err != nil {
			panic(err)
		}
		err = store.Register(ctx, "billing", dedup.DefaultWindow)
		fmt.Println(errors.Is(err, dedup.ErrNotDurable), errors.Is(err, dedup.ErrSchema))
	}
	// Output:
	// true false
	// false true
}

// PostgreSQL through any driver that is registered, such as pgx's stdlib.
func ExampleDialect() {
	open := func(db *sql.DB) (*sqlstore.Store, error) {
		return sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Postgres, Schema: "txonce"})
	}
	_, err := open(nil)
	fmt.Println(err)
	// Output: sqlstore: Config.DB is required
}

// A table of one's own that remembers what was processed is imported once, while its consumer stands still.
func ExampleStore_Claim_import() {
	ctx := context.Background()
	db, remove := openExample(ctx)
	defer remove()
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		panic(err)
	}
	processed := map[string]time.Time{"order-41": time.Now().Add(-time.Hour), "order-42": time.Now().Add(-time.Minute)} // from the old table

	var recs []dedup.Record // in larger tables, 1,000 in each transaction
	for id, at := range processed {
		recs = append(recs, dedup.Record{Key: dedup.Key{Consumer: "billing", ID: id}, Time: at})
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	if _, err := store.Claim(ctx, tx, recs); err != nil {
		panic(err)
	}
	if err := tx.Commit(); err != nil {
		panic(err)
	}

	_, found, err := store.Lookup(ctx, dedup.Key{Consumer: "billing", ID: "order-42"})
	fmt.Println(found, err)
	// Output: true <nil>
}
