package fromredis

import (
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
)

// after returns the new handler: charge is the same, and runs in the transaction that claims the order.
func after(store *pgxstore.Store) (*consumer.Consumer[pgx.Tx], error) {
	return consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(charge),
	})
}
