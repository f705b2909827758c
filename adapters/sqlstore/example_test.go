package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// openExample opens a database that has txonce's tables and the application's own table.
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

// A message is delivered twice but charged once: the claim and the charge are in one transaction.
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

// A program that begins its own transactions claims in them. A rollback also undoes the claim.
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

// Register fails at start if settings would later lose commits or make every message fail.
func ExampleConfig() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sqlstore")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	hasty, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(normal)")
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

// PostgreSQL works with any registered driver, such as pgx's stdlib.
func ExampleDialect() {
	open := func(db *sql.DB) (*sqlstore.Store, error) {
		return sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.Postgres, Schema: "txonce"})
	}
	_, err := open(nil)
	fmt.Println(err)
	// Output: sqlstore: Config.DB is required
}

// An application that kept its own table of processed messages imports that table once, while its consumer is stopped.
func ExampleStore_Claim_import() {
	ctx := context.Background()
	db, remove := openExample(ctx)
	defer remove()
	store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: sqlstore.SQLite})
	if err != nil {
		panic(err)
	}
	// from the old table
	processed := map[string]time.Time{"order-41": time.Now().Add(-time.Hour), "order-42": time.Now().Add(-time.Minute)}

	var recs []dedup.Record // for a large table, import 1,000 per transaction
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
