package fromriver

import (
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
)

// after returns the new code: charge is the same. There is no job: the broker delivers again until it is
// committed.
func after(store *pgxstore.Store) (*consumer.Consumer[pgx.Tx], error) {
	return consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: store, Key: consumer.JSONKey("order_id"), Handle: consumer.JSON(charge),
	})
}
