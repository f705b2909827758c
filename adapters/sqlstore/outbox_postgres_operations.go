package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/outbox"
)

// errLater stands until the statements of dialect.PostgresOutbox for them are there.
var errLater = errors.New("not yet on PostgreSQL")

func (d *postgres) behind(context.Context, queryer, []int) ([]int, error) { return nil, nil }
func (d *postgres) follow(context.Context, *sql.Tx, *outboxHold, map[int]int64) error {
	return errLater
}
func (d *postgres) untidy(context.Context, queryer) (bool, error)          { return false, nil }
func (d *postgres) forget(context.Context, *sql.Tx) error                  { return errLater }
func (d *postgres) unpark(context.Context, *sql.Tx, []int64) (int, error)  { return 0, errLater }
func (d *postgres) discard(context.Context, *sql.Tx, []int64) (int, error) { return 0, errLater }
func (d *postgres) stats(context.Context, queryer) (outbox.Stats, error) {
	return outbox.Stats{}, errLater
}
func (d *postgres) parked(context.Context, queryer, outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	return nil, errLater
}
