package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox"
)

// What one INSERT carries at the most, but for a single message that is larger.
const (
	mysqlStatementRows  = 500
	mysqlStatementBytes = 1 << 20
)

// enqueue writes msgs, whose numbers are assigned in their order within each statement and over all of them.
func (d *mysql) enqueue(ctx context.Context, tx *sql.Tx, msgs []outbox.Message) error {
	shards, err := d.shardsIn(ctx, tx)
	if err != nil {
		return err
	}
	var clock instant // zero: no message waits
	for i := range msgs {
		if !msgs[i].NotBefore.IsZero() {
			if err := tx.QueryRowContext(ctx, d.box.Now).Scan(&clock); err != nil {
				return err
			}
			break
		}
	}
	now, later := mysqlInserts{first: d.box.Enqueue, row: d.box.EnqueueRow}, mysqlInserts{first: d.box.Delay, row: d.box.DelayRow}
	for i := range msgs {
		m := &msgs[i]
		rows := &now
		notBefore := clampTime(m.NotBefore)
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
		if rows.n > 0 && (rows.n == mysqlStatementRows || rows.size+size > mysqlStatementBytes) {
			if err := rows.insert(ctx, tx); err != nil {
				return err
			}
		}
		rows.n, rows.size, rows.args = rows.n+1, rows.size+size, append(rows.args, args...)
	}
	if err := now.insert(ctx, tx); err != nil {
		return err // it may have ended the transaction, so that the next statement would stand by itself
	}
	return later.insert(ctx, tx)
}

// row returns the columns of m, and about how large it is.
func (d *mysql) row(m *outbox.Message, shards int) (args []any, size int, err error) {
	headers, err := encodeHeaders(m.Headers)
	if err != nil {
		return nil, 0, err
	}
	size = len(m.Key) + len(m.Payload) + len(headers)
	if err := d.fits(size); err != nil { // also back: a row that the server cannot send would stop its shard
		return nil, 0, fmt.Errorf("%w: topic %q: %w", outbox.ErrBadMessage, m.Topic, err)
	}
	var key, hash, encoded any
	if m.Key != "" {
		sum := sha256.Sum256([]byte(m.Key))
		key, hash = []byte(m.Key), sum[:]
	}
	if headers != nil {
		encoded = headers
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{}
	}
	return []any{outbox.Shard(m, shards), m.ID, m.Topic, key, hash, payload, encoded, size}, size, nil
}

// mysqlInserts are the rows of the next INSERT.
type mysqlInserts struct {
	first, row string
	n, size    int
	args       []any
}

func (r *mysqlInserts) insert(ctx context.Context, tx *sql.Tx) (err error) {
	if r.n == 0 {
		return nil
	}
	query := r.first + strings.Repeat(r.row+", ", r.n-1) + r.row
	if r.size > mysqlStatementBytes {
		// A driver that writes parameters into the statement makes it up to twice as long, which the server may not take.
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

// shardsIn returns the number of shards, as postgres.shardsIn does, and notes how much the server takes at once.
func (d *mysql) shardsIn(ctx context.Context, tx *sql.Tx) (int, error) {
	if n := d.shards.Load(); n > 0 {
		return int(n), nil
	}
	var n, last, packet int64
	if err := tx.QueryRowContext(ctx, d.box.Shards).Scan(&n, &last, &packet); err != nil {
		return 0, err
	}
	if n == 0 || last != n-1 {
		return 0, errNoShards
	}
	d.packet.Store(packet)
	d.shards.Store(n)
	return int(n), nil
}

// serialize locks the row of the key's slot until tx ends. Keys that share one wait for each other without need.
func (d *mysql) serialize(ctx context.Context, tx *sql.Tx, key string) error {
	h := fnv.New64a()
	h.Write([]byte("txonce outbox serialize\x00" + key))
	return d.lockSlot(ctx, tx, int(h.Sum64()%dialect.TakeTurn))
}

var errNoLocks = claims.DatabaseErrorf("%w: rows of outbox_locks are missing; undo txonce's migrations and apply them again", dedup.ErrSchema)

func (d *mysql) lockSlot(ctx context.Context, tx *sql.Tx, slot int) error {
	err := tx.QueryRowContext(ctx, d.box.Serialize, slot).Scan(&slot)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoLocks
	}
	return err
}

// hasten comes first in each transaction on the relay's side.
func (d *mysql) hasten(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, d.box.Settings)
	return err
}

func (h *outboxHold) hex() string { return hex.EncodeToString(h.owner[:]) }

func (d *mysql) renew(ctx context.Context, tx *sql.Tx, by *outboxHold) (share outboxShare, err error) {
	query, args := d.box.Begin, []any{by.hex(), []byte(by.name), ceilMicros(by.ttl)}
	if by.begun {
		query, args = d.box.Extend, []any{ceilMicros(by.ttl), by.hex()}
	}
	if err := d.hasten(ctx, tx); err != nil {
		return share, err
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return share, err
	}
	if err := d.alive(ctx, tx, by); err != nil {
		return share, err
	}
	share = newOutboxShare()
	rows, err := tx.QueryContext(ctx, d.box.Survey, []byte(by.name), by.hex())
	if err := each(rows, err, share.scanRelay); err != nil {
		return share, err
	}
	rows, err = tx.QueryContext(ctx, d.box.Held, by.hex())
	err = each(rows, err, share.scan)
	return share, err
}

// alive fails with outbox.ErrLeaseLost when the hold's time is over.
func (d *mysql) alive(ctx context.Context, tx *sql.Tx, by *outboxHold) error {
	var alive bool
	err := tx.QueryRowContext(ctx, d.box.Alive, by.hex()).Scan(&alive)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !alive {
		return fmt.Errorf("%w: its time was over", outbox.ErrLeaseLost)
	}
	return err
}

func (d *mysql) take(ctx context.Context, tx *sql.Tx, by *outboxHold, n int) (map[int]int64, error) {
	if err := d.hasten(ctx, tx); err != nil {
		return nil, err
	}
	if err := d.lockSlot(ctx, tx, dialect.TakeTurn); err != nil {
		return nil, err
	}
	if err := d.bury(ctx, tx, 0); err != nil {
		return nil, err
	}
	free, err := readShards(tx.QueryContext(ctx, d.box.Free))
	if err != nil || len(free) == 0 {
		return nil, err
	}
	tokens, err := readTokens(tx.QueryContext(ctx, d.box.Lock, mysqlShards(free), n))
	if err != nil || len(tokens) == 0 {
		return nil, err
	}
	if err := d.alive(ctx, tx, by); err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, d.box.Take, mysqlTokens(tokens), by.hex())
	return tokens, err
}

// bury takes away the rows of relays whose time has been over for so long, in microseconds.
func (d *mysql) bury(ctx context.Context, tx *sql.Tx, margin int64) error {
	var owners []string
	rows, err := tx.QueryContext(ctx, d.box.Expired, margin)
	err = each(rows, err, func(rows *sql.Rows) error {
		var owner derived
		err := rows.Scan(&owner)
		owners = append(owners, hex.EncodeToString(owner[:]))
		return err
	})
	if err == nil && len(owners) > 0 {
		_, err = tx.ExecContext(ctx, d.box.Bury, jsonText(owners))
	}
	return err
}

func (d *mysql) giveBack(ctx context.Context, tx *sql.Tx, by *outboxHold, shards []int) error {
	if err := d.hasten(ctx, tx); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, d.box.GiveBack, mysqlShards(shards), by.hex())
	return err
}

func (d *mysql) leave(ctx context.Context, tx *sql.Tx, by *outboxHold) error {
	if err := d.hasten(ctx, tx); err != nil {
		return err
	}
	for _, query := range [...]string{d.box.Leave, d.box.End} {
		if _, err := tx.ExecContext(ctx, query, by.hex()); err != nil {
			return err
		}
	}
	return nil
}

// mysqlShards is a list of shards.
func mysqlShards(shards []int) string {
	list := make([][1]int, len(shards))
	for i, shard := range shards {
		list[i][0] = shard
	}
	return jsonText(list)
}

func (d *mysql) notify(context.Context) {} // other processes poll
