package adapt_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// adaptBun returns a store whose handlers get a bun.Tx. app is the application's own bun.DB on the database of store.
func adaptBun(ctx context.Context, store *sqlstore.Store, app *bun.DB) (*sqlstore.Adapted[bun.Tx], error) {
	// Only bun can make a bun.Tx, but its field Tx can be replaced. Methods of bun.Tx without a context use ctx.
	pattern, err := app.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if err := pattern.Rollback(); err != nil {
		return nil, err
	}
	return sqlstore.Adapt(store,
		func(_ context.Context, tx *sql.Tx) (bun.Tx, error) {
			adapted := pattern
			adapted.Tx = tx
			return adapted, nil
		},
		func(tx bun.Tx) *sql.Tx { return tx.Tx })
}

// A handler that takes bun's transaction.
func Example_bun() {
	ctx := context.Background()
	db, store, remove := openExample()
	defer remove()
	app := bun.NewDB(db, sqlitedialect.New())
	adapted, err := adaptBun(ctx, store, app)
	if err != nil {
		panic(err)
	}
	billing, err := consumer.New(consumer.Config[bun.Tx]{
		Name: "billing", Store: adapted, Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx bun.Tx, order orderPlaced) error {
			if _, err := tx.NewInsert().Model(&Charge{OrderID: order.OrderID, Cents: order.Cents}).Exec(ctx); err != nil {
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
	if err := app.NewSelect().Model(&charges).Scan(ctx); err != nil {
		panic(err)
	}
	fmt.Println(charges, "and", pending(store), "message to publish")
	// Output: [{order-42 1999}] and 1 message to publish
}
