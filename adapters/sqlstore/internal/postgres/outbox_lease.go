package postgres

import (
	"context"
	"database/sql"
	"maps"
	"math"
	"slices"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/watermark"
	"github.com/txonce/txonce/outbox/driver"
)

// beginning has the parameters that say where a statement begins to read the messages of shards.
type beginning struct {
	poll                                          *watermark.Poll
	shards, tokens, lows, returned, skips, untils string
}

// begin begins a poll. tokens has the token of each shard.
func begin(by *engine.Hold, shards []int, tokens map[int]int64) (b beginning) {
	numbers, with := columnsOfShards(shards, tokens)
	b.poll = by.Marks.Begin(numbers, with)
	b.shards, b.tokens, b.lows, b.returned = arrayOf(numbers), arrayOf(with), arrayOf(b.poll.Lows), arrayOf(b.poll.Returned)
	b.skips, b.untils = arrayOf(b.poll.Skips), arrayOf(b.poll.Untils)
	return b
}

func columnsOfShards(shards []int, tokens map[int]int64) (numbers []int16, with []int64) {
	for _, n := range shards {
		numbers, with = append(numbers, int16(n)), append(with, tokens[n])
	}
	return numbers, with
}

// Leasable also raises the lows of by.Marks to the first message of each shard, and moves the watermark after many messages.
func (d *DB) Leasable(ctx context.Context, q engine.Queryer, by *engine.Hold, held map[int]int64) (engine.Leasable, error) {
	mine := by.Sequence.TryLock() // otherwise another Lease of the session sees to the sequence
	if mine {
		defer by.Sequence.Unlock()
	}
	for {
		found, server, last, err := d.look(ctx, q, by, held)
		if err != nil || !mine {
			return found, err
		}
		if by.Marks.Notice(ctx, server, last) {
			continue // from the first row of each shard
		}
		if by.Marks.Due() {
			by.Marks.Moving()
			err = d.moveTo(ctx, q, by, server, last)
		}
		return found, err
	}
}

// moveTo moves the watermark. The caller has read last before, holds by.Sequence, and has called by.Marks.Moving.
func (d *DB) moveTo(ctx context.Context, q engine.Queryer, by *engine.Hold, server, last int64) error {
	writers, err := engine.Column[string](engine.Query(ctx, q, d.box.relay.Writers))
	if err == nil {
		by.Marks.Move(ctx, server, last, writers)
	}
	return err
}

// look finds the shards that have messages, and returns what Marks.Move needs.
func (d *DB) look(ctx context.Context, q engine.Queryer, by *engine.Hold, held map[int]int64) (found engine.Leasable, server, last int64, err error) {
	from := begin(by, slices.Sorted(maps.Keys(held)), held)
	found.Tokens = make(map[int]int64)
	alive := false
	err = engine.Query(
		ctx, q, d.box.look.Look, uuid(by.Owner), from.shards, from.tokens, from.lows, from.returned, from.skips, from.untils,
	).Each(func(rows engine.Row) error {
		var shard, token, returned, first sql.NullInt64
		var skipped sql.NullBool
		if err := rows.Scan(&alive, &found.Due, &last, &server, &shard, &token, &returned, &skipped, &first); err != nil {
			return err
		}
		switch n := int(shard.Int64); {
		case !shard.Valid: // the session holds none of the shards
		case first.Valid:
			from.poll.Row(watermark.Row{Shard: n, Seq: first.Int64, N: 1, Returned: returned.Int64, Skipped: skipped.Bool})
			found.Tokens[n] = token.Int64
		default:
			from.poll.Empty(n, returned.Int64, skipped.Bool)
		}
		return nil
	})
	switch {
	case err != nil:
	case !alive:
		err = driver.ErrLeaseLost
	default:
		by.Marks.End(from.poll, false)
	}
	return found, server, last, err
}

// Lease scans scanAtFirst rows of each shard. If all of them wait, it scans more, up to scanAtMost.
const (
	scanAtFirst = 2 << 10
	scanAtMost  = 2 << 20
)

// Lease scans the first rows of each shard, and further rows if all of those wait.
func (d *DB) Lease(
	ctx context.Context, q engine.Queryer, by *engine.Hold, shards []int, tokens map[int]int64, want driver.Want,
) (msgs []driver.Leased, err error) {
	part := (want.Limit + len(shards) - 1) / len(shards)
	for scan := max(scanAtFirst, part+1); len(shards) > 0 && scan <= scanAtMost; scan *= 8 {
		found, full, deeper, err := d.leaseFirst(ctx, q, by, shards, tokens, scan, part, want)
		if err != nil {
			return nil, err
		}
		if len(full) > 0 && len(found) < want.Limit/2 && part < want.Limit { // few shards have messages: read more from these
			part = want.Limit
			found, _, deeper, err = d.leaseFirst(ctx, q, by, full, tokens, max(scan, part+1), part, want)
			if err != nil {
				return nil, err
			}
		}
		if len(found) > 0 {
			by.Marks.Leased(len(found))
			return found, nil
		}
		shards = deeper
	}
	return nil, nil
}

// leaseFirst returns the due messages among the first scan rows of shards. full are the shards that returned part messages, and
// deeper are the shards that have more rows to scan.
func (d *DB) leaseFirst(
	ctx context.Context, q engine.Queryer, by *engine.Hold, shards []int, tokens map[int]int64, scan, part int, want driver.Want,
) (msgs []driver.Leased, full, deeper []int, err error) {
	var scans, parts array
	for range shards {
		scans.add(int64(scan))
		parts.add(int64(part))
	}
	from := begin(by, shards, tokens)
	bytes := int64(want.Bytes)
	if bytes == 0 {
		bytes = math.MaxInt64
	}
	room := engine.NewRoom(want)
	per := make(map[int]int)
	err = engine.Query(
		ctx, q, d.box.relay.LeaseFrom, uuid(by.Owner), from.shards, from.tokens, scans.String(), want.Limit, bytes, parts.String(), from.lows, from.returned,
		from.skips, from.untils,
	).Each(func(rows engine.Row) error {
		var m driver.Leased
		var mark watermark.Row
		var held bool
		var key []byte
		var headers sql.NullString
		var at engine.Instant
		if err := rows.Scan(&m.Shard, &m.Token, &mark.N, &held, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &at, &m.Attempts,
			&mark.Returned, &mark.Skipped, &mark.Until); err != nil {
			return err
		}
		mark.Shard, mark.Seq = m.Shard, m.Seq
		from.poll.Row(mark)
		if mark.N == int64(scan) {
			deeper = append(deeper, m.Shard)
		}
		if held || room.Full || !room.Take(len(key)+len(m.Payload)+len(headers.String)) {
			return nil
		}
		if per[m.Shard]++; per[m.Shard] == part {
			full = append(full, m.Shard)
		}
		m.OrderingKey, m.Enqueued = string(key), at.Time
		m.Headers, m.Unreadable = engine.DecodeHeaders(headers.String)
		msgs = append(msgs, m)
		return nil
	})
	if err == nil {
		by.Marks.End(from.poll, false)
	}
	return msgs, full, deeper, err
}
