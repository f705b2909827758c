package sqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/txonce/txonce/outbox"
)

// errNoMySQLOutbox stands until the outbox is there.
var errNoMySQLOutbox = errors.New("sqlstore: no outbox on MySQL yet")

func (d *mysql) enqueue(context.Context, *sql.Tx, []outbox.Message) error { return errNoMySQLOutbox }
func (d *mysql) serialize(context.Context, *sql.Tx, string) error         { return errNoMySQLOutbox }

func (d *mysql) renew(context.Context, *sql.Tx, *outboxHold) (outboxShare, error) {
	return outboxShare{}, errNoMySQLOutbox
}

func (d *mysql) take(context.Context, *sql.Tx, *outboxHold, int) (map[int]int64, error) {
	return nil, errNoMySQLOutbox
}
func (d *mysql) giveBack(context.Context, *sql.Tx, *outboxHold, []int) error { return errNoMySQLOutbox }
func (d *mysql) leave(context.Context, *sql.Tx, *outboxHold) error           { return errNoMySQLOutbox }

func (d *mysql) reading(context.Context, func(context.Context, queryer) error) error {
	return errNoMySQLOutbox
}

func (d *mysql) look(context.Context, queryer, *outboxHold) (outboxSight, error) {
	return outboxSight{}, errNoMySQLOutbox
}
func (d *mysql) come(context.Context, *sql.Tx, int) error { return errNoMySQLOutbox }

func (d *mysql) lease(context.Context, queryer, *outboxHold, []int, map[int]int64, outbox.Want) ([]outbox.Leased, error) {
	return nil, errNoMySQLOutbox
}

func (d *mysql) own(context.Context, queryer, *outboxHold, map[int]int64) error {
	return errNoMySQLOutbox
}

func (d *mysql) settleLeases(context.Context, *sql.Tx, *outboxHold, map[int]int64, []outbox.Outcome, []int) error {
	return errNoMySQLOutbox
}

func (d *mysql) untidy(context.Context, []int) ([]int, bool, error) {
	return nil, false, errNoMySQLOutbox
}

func (d *mysql) follow(context.Context, *sql.Tx, *outboxHold, map[int]int64) error {
	return errNoMySQLOutbox
}
func (d *mysql) forget(context.Context, *sql.Tx) error          { return errNoMySQLOutbox }
func (d *mysql) rescue(context.Context, outboxRun, []int) error { return errNoMySQLOutbox }

func (d *mysql) repair(context.Context, outboxRun, []int64, bool) (int, error) {
	return 0, errNoMySQLOutbox
}

func (d *mysql) parked(context.Context, queryer, outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	return nil, errNoMySQLOutbox
}
func (d *mysql) statsStatements() *outboxStatsStatements { return &outboxStatsStatements{} }
func (d *mysql) notify(context.Context)                  {}
