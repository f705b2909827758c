package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// Limits of one INSERT. A single larger message gets an INSERT of its own.
const (
	statementRows  = 500
	statementBytes = 1 << 20
)

// Enqueue writes msgs. Their numbers increase in the order of msgs, also across several statements.
func (d *DB) Enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	shards, err := d.shardsIn(ctx, tx)
	if err != nil {
		return err
	}
	var clock engine.Instant // zero: no message is delayed
	for i := range msgs {
		if !msgs[i].NotBefore.IsZero() {
			if err := tx.QueryRowContext(ctx, d.box.Now).Scan(&clock); err != nil {
				return err
			}
			break
		}
	}
	now, later := inserts{first: d.box.Enqueue, row: d.box.EnqueueRow}, inserts{first: d.box.Delay, row: d.box.DelayRow}
	for i := range msgs {
		m := &msgs[i]
		rows := &now
		notBefore := engine.ClampTime(m.NotBefore)
		waits := notBefore.After(clock.Time)
		if waits {
			rows = &later
		}
		args, size, err := d.row(m, shards)
		if err != nil {
			return err
		}
		if waits {
			args = append(args, notBefore.UnixMicro())
		}
		if rows.n > 0 && (rows.n == statementRows || rows.size+size > statementBytes) {
			if err := rows.insert(ctx, tx); err != nil {
				return err
			}
		}
		rows.n, rows.size, rows.args = rows.n+1, rows.size+size, append(rows.args, args...)
	}
	if err := now.insert(ctx, tx); err != nil {
		// the failure may have ended the transaction, and the next statement would then be committed without it
		return err
	}
	return later.insert(ctx, tx)
}

// row returns the column values of m, and the approximate size of the row.
func (d *DB) row(m *outbox.Message, shards int) (args []any, size int, err error) {
	headers, err := engine.EncodeHeaders(m.Headers)
	if err != nil {
		return nil, 0, err
	}
	size = len(m.OrderingKey) + len(m.Payload) + len(headers)
	if err := d.Fits(size); err != nil { // a row that the server cannot send back would block its shard
		return nil, 0, fmt.Errorf("%w: topic %q: %w", outbox.ErrBadMessage, m.Topic, err)
	}
	var key, hash, encoded any
	if m.OrderingKey != "" {
		sum := sha256.Sum256([]byte(m.OrderingKey))
		key, hash = []byte(m.OrderingKey), sum[:]
	}
	if headers != nil {
		encoded = headers
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	return []any{driver.Shard(m, shards), m.ID, m.Topic, key, hash, payload, encoded, size}, size, nil
}

// inserts collects the rows of the next INSERT.
type inserts struct {
	first, row string
	n, size    int
	args       []any
}

func (r *inserts) insert(ctx context.Context, tx *sql.Tx) (err error) {
	if r.n == 0 {
		return nil
	}
	query := r.first + strings.Repeat(r.row+", ", r.n-1) + r.row
	if r.size > statementBytes {
		// Drivers that interpolate parameters may double the statement's length, which could exceed the server's limit.
		err = execPrepared(ctx, tx, query, r.args)
	} else {
		_, err = tx.ExecContext(ctx, query, r.args...)
	}
	r.n, r.size, r.args = 0, 0, nil
	return err
}

func execPrepared(ctx context.Context, tx *sql.Tx, query string, args []any) error {
	stmt, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer stmt.Close()
	_, err = stmt.ExecContext(ctx, args...)
	return err
}

// shardsIn returns the number of shards, as in package postgres, and stores the server's max_allowed_packet.
func (d *DB) shardsIn(ctx context.Context, tx *sql.Tx) (int, error) {
	if n := d.shards.Load(); n > 0 {
		return int(n), nil
	}
	var n, last, packet int64
	if err := tx.QueryRowContext(ctx, d.box.Shards).Scan(&n, &last, &packet); err != nil {
		return 0, err
	}
	if n == 0 || last != n-1 {
		return 0, engine.ErrNoShards
	}
	d.packet.Store(packet)
	d.shards.Store(n)
	return int(n), nil
}

// LockOrderingKey locks the row of the key's slot until tx ends. Two keys with the same slot also wait for each other.
func (d *DB) LockOrderingKey(ctx context.Context, tx *sql.Tx, key string) error {
	return d.lockSlot(ctx, tx, int(columns.SerializeLock(key)%dialect.TakeTurn))
}

var errNoLocks = engine.Database.Errorf("%w: rows of outbox_locks are missing; undo txonce's migrations and apply them again", dedup.ErrSchema)

func (d *DB) lockSlot(ctx context.Context, tx *sql.Tx, slot int) error {
	err := tx.QueryRowContext(ctx, d.box.LockOrderingKey, slot).Scan(&slot)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoLocks
	}
	return err
}

// applySettings is the first statement of each of the relay's transactions.
func (d *DB) applySettings(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, d.box.Settings)
	return err
}

func (d *DB) Notify(context.Context) {} // MySQL has no NOTIFY; relays of other processes poll
