package adapt_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/adapters/sqlstore/test/adapt/ledger"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// The generated queries take any *sql.Tx, so nothing needs adapting.
func Example_sqlc() {
	db, store, remove := openExample()
	defer remove()
	billing, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx *sql.Tx, order orderPlaced) error {
			return ledger.New(tx).Charge(ctx, ledger.ChargeParams{OrderID: order.OrderID, Cents: order.Cents})
		}),
	})
	if err != nil {
		panic(err)
	}
	deliverTwice(billing)

	charges, err := ledger.New(db).Charges(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(charges)
	// Output: [{order-42 1999}]
}

// Tx is for handlers that should see only generated queries. Queries does not reveal its transaction, so Tx also holds
// it.
type Tx struct {
	*ledger.Queries
	tx *sql.Tx
}

func adaptSQLC(store *sqlstore.Store) (*sqlstore.Adapted[Tx], error) {
	return sqlstore.Adapt(store,
		func(_ context.Context, tx *sql.Tx) (Tx, error) { return Tx{ledger.New(tx), tx}, nil },
		func(tx Tx) *sql.Tx { return tx.tx })
}

// The same with handlers that take the generated queries directly.
func Example_sqlcQueries() {
	db, store, remove := openExample()
	defer remove()
	adapted, err := adaptSQLC(store)
	if err != nil {
		panic(err)
	}
	billing, err := consumer.New(consumer.Config[Tx]{
		Name: "billing", Store: adapted, Key: consumer.JSONKey("order_id"),
		Handle: consumer.JSON(func(ctx context.Context, tx Tx, order orderPlaced) error {
			if err := tx.Charge(ctx, ledger.ChargeParams{OrderID: order.OrderID, Cents: order.Cents}); err != nil {
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

	charges, err := ledger.New(db).Charges(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(charges, "and", pending(store), "message to publish")
	// Output: [{order-42 1999}] and 1 message to publish
}
