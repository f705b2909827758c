package adapt_test

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

// Charge is a row of the application's table.
type Charge struct {
	OrderID string
	Cents   int64
}

// gormStore gives handlers a *gorm.DB. It makes a transaction fail if one of its statements failed, even if the handler ignored
// Error: gorm continues after a failed statement, and only PostgreSQL refuses the next one.
type gormStore struct {
	*sqlstore.Adapted[*gorm.DB]
	mu     sync.Mutex
	firsts map[*sql.Tx]*firstError
}

// firstError holds the first error of a transaction, and the value it had when each savepoint was set.
type firstError struct {
	err        error
	savepoints map[string]error
}

// adaptGORM returns a store whose handlers get a *gorm.DB. app is the application's own gorm.DB on the database of store.
func adaptGORM(store *sqlstore.Store, app *gorm.DB) (*gormStore, error) {
	adapted, err := sqlstore.Adapt(store,
		func(ctx context.Context, tx *sql.Tx) (*gorm.DB, error) {
			db := app.Session(&gorm.Session{NewDB: true, Context: ctx}) // with a Statement of its own
			db.Statement.ConnPool = tx                                  // as gorm's Begin does
			return db, nil
		}, gormTx)
	if err != nil {
		return nil, err
	}
	s := &gormStore{Adapted: adapted, firsts: make(map[*sql.Tx]*firstError)}
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
	case *gorm.PreparedStmtTX: // PrepareStmt is set
		tx, _ := pool.Tx.(*sql.Tx)
		return tx
	}
	return nil
}

// note is called after every statement. Rolling back to a savepoint forgets the errors that came after it.
func (s *gormStore) note(db *gorm.DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.firsts[gormTx(db)]
	if first == nil {
		return // InTx did not begin this transaction
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

// VerifyTx implements dedup.TxVerifier: it finds which handler of a batch ignored a failed statement.
func (s *gormStore) VerifyTx(ctx context.Context, tx *gorm.DB) error {
	if err := s.failed(tx); err != nil {
		return err
	}
	return s.Adapted.VerifyTx(ctx, tx)
}

// A handler that takes gorm's transaction. It checks every Error; gormStore fails the transaction if a handler forgets to.
func Example_gorm() {
	db, store, remove := openExample()
	defer remove()
	app, err := gorm.Open(sqlite.New(sqlite.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	adapted, err := adaptGORM(store, app)
	if err != nil {
		panic(err)
	}
	billing, err := consumer.New(consumer.Config[*gorm.DB]{
		Name: "billing", Store: adapted, Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx *gorm.DB, order orderPlaced) error {
			if err := tx.Create(&Charge{OrderID: order.OrderID, Cents: order.Cents}).Error; err != nil {
				return err
			}
			return adapted.Enqueue(ctx, tx, outbox.Message{Topic: "charges", Key: order.OrderID, Payload: []byte(`{}`)})
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
