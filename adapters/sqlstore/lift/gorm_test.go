package lift_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// Charge is a row of the application's.
type Charge struct {
	OrderID string
	Cents   int64
}

// gormStore makes handlers get a *gorm.DB, and fails a transaction in which a statement failed, though the handler did not look at
// its Error: gorm goes on after it, and only PostgreSQL refuses to.
type gormStore struct {
	*sqlstore.Adapted[*gorm.DB]
	mu     sync.Mutex
	firsts map[*sql.Tx]*firstError
}

// firstError is the first error of a transaction, and what it was when each savepoint was set.
type firstError struct {
	err        error
	savepoints map[string]error
}

// liftGORM returns it. app is the application's own, of the same database as store.
func liftGORM(store *sqlstore.Store, app *gorm.DB) (*gormStore, error) {
	lifted, err := sqlstore.Adapt(store,
		func(ctx context.Context, tx *sql.Tx) (*gorm.DB, error) {
			db := app.Session(&gorm.Session{NewDB: true, Context: ctx}) // with a Statement of its own
			db.Statement.ConnPool = tx                                  // as gorm's Begin does
			return db, nil
		}, gormTx)
	if err != nil {
		return nil, err
	}
	s := &gormStore{Adapted: lifted, firsts: make(map[*sql.Tx]*firstError)}
	const name = "txonce:first_error"
	on := app.Callback()
	return s, errors.Join(
		on.Create().After("*").Register(name, s.note), on.Query().After("*").Register(name, s.note),
		on.Update().After("*").Register(name, s.note), on.Delete().After("*").Register(name, s.note),
		on.Row().After("*").Register(name, s.note), on.Raw().After("*").Register(name, s.note))
}

// gormTx returns the transaction that the statements of db run in.
func gormTx(db *gorm.DB) *sql.Tx {
	switch pool := db.Statement.ConnPool.(type) {
	case *sql.Tx:
		return pool
	case *gorm.PreparedStmtTX: // of a session with PrepareStmt
		tx, _ := pool.Tx.(*sql.Tx)
		return tx
	}
	return nil
}

// note is called after every statement. What failed behind a savepoint is forgotten with it.
func (s *gormStore) note(db *gorm.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.firsts[gormTx(db)]
	if first == nil {
		return // not a transaction of InTx
	}
	query := db.Statement.SQL.String()
	switch name, back := strings.CutPrefix(query, "ROLLBACK TO SAVEPOINT "); {
	case db.Error != nil && !errors.Is(db.Error, gorm.ErrRecordNotFound):
		first.err = cmp.Or(first.err, db.Error)
	case back:
		first.err = first.savepoints[name]
	case strings.HasPrefix(query, "SAVEPOINT "):
		first.savepoints[strings.TrimPrefix(query, "SAVEPOINT ")] = first.err
	}
}

func (s *gormStore) failed(tx *gorm.DB) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first := s.firsts[gormTx(tx)]; first != nil && first.err != nil {
		return fmt.Errorf("a statement failed, and the handler returned nil: %w", first.err)
	}
	return nil
}

// InTx implements dedup.Store.
func (s *gormStore) InTx(ctx context.Context, recs []dedup.Record, fn func(tx *gorm.DB, claims []dedup.Claim) error) error {
	return s.Adapted.InTx(ctx, recs, func(tx *gorm.DB, claims []dedup.Claim) error {
		of := gormTx(tx)
		s.mu.Lock()
		s.firsts[of] = &firstError{savepoints: make(map[string]error)}
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.firsts, of)
		}()
		if err := fn(tx, claims); err != nil {
			return err
		}
		return s.failed(tx)
	})
}

// VerifyTx implements dedup.TxVerifier: in a batch the handler whose statement failed is the one to blame.
func (s *gormStore) VerifyTx(ctx context.Context, tx *gorm.DB) error {
	if err := s.failed(tx); err != nil {
		return err
	}
	return s.Adapted.VerifyTx(ctx, tx)
}

// A handler that takes gorm's transaction. It looks at every Error; where it forgets to, gormStore does.
func Example_gorm() {
	db, store, remove := openExample()
	defer remove()
	app, err := gorm.Open(sqlite.New(sqlite.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	lifted, err := liftGORM(store, app)
	if err != nil {
		panic(err)
	}
	billing, err := consumer.New(consumer.Config[*gorm.DB]{
		Name: "billing", Store: lifted, Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx *gorm.DB, order orderPlaced) error {
			if err := tx.Create(&Charge{OrderID: order.OrderID, Cents: order.Cents}).Error; err != nil {
				return err
			}
			return lifted.Enqueue(ctx, tx, outbox.Message{Topic: "charges", Key: order.OrderID, Payload: []byte(`{}`)})
		}),
	})
	if err != nil {
		panic(err)
	}
	deliverTwice(billing)

	var charges []Charge
	if err := app.Find(&charges).Error; err != nil {
		panic(err)
	}
	fmt.Println(charges, "and", pending(store), "message to publish")
	// Output: [{order-42 1999}] and 1 message to publish
}
