package lift_test

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// Charge is a row of the application's.
type Charge struct {
	OrderID string
	Cents   int64
}

// liftGORM makes handlers get a *gorm.DB. app is the application's own, of the same database as store.
func liftGORM(store *sqlstore.Store, app *gorm.DB) (*sqlstore.Lifted[*gorm.DB], error) {
	return sqlstore.Lift(store,
		func(ctx context.Context, tx *sql.Tx) (*gorm.DB, error) {
			db := app.Session(&gorm.Session{NewDB: true, Context: ctx}) // with a Statement of its own
			db.Statement.ConnPool = tx                                  // as gorm's Begin does
			return db, nil
		},
		func(db *gorm.DB) *sql.Tx {
			switch pool := db.Statement.ConnPool.(type) {
			case *sql.Tx:
				return pool
			case *gorm.PreparedStmtTX: // of a session with PrepareStmt
				tx, _ := pool.Tx.(*sql.Tx)
				return tx
			}
			return nil
		})
}

// A handler that takes gorm's transaction. It looks at every Error, as gorm does not.
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
