package adapt_test

import (
	"context"
	"fmt"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/txonce/txonce/adapters/sqlstore/gormstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// Charge is a row of the application's table.
type Charge struct {
	OrderID string
	Cents   int64
}

// A handler that takes gorm's transaction. It checks every Error; gormstore fails the transaction if a handler forgets
// to.
func Example_gorm() {
	db, store, remove := openExample()
	defer remove()
	app, err := gorm.Open(sqlite.New(sqlite.Config{Conn: db}), &gorm.Config{})
	if err != nil {
		panic(err)
	}
	adapted, err := gormstore.New(store, app)
	if err != nil {
		panic(err)
	}
	billing, err := consumer.New(consumer.Config[*gorm.DB]{
		Name: "billing", Store: adapted, Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx *gorm.DB, order orderPlaced) error {
			if err := tx.Create(&Charge{OrderID: order.OrderID, Cents: order.Cents}).Error; err != nil {
				return err
			}
			return adapted.Enqueue(ctx, tx, outbox.Message{
				Topic: "charges", OrderingKey: order.OrderID,
				Payload: []byte(`{}`),
			})
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
