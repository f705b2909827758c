package engine

import (
	"database/sql"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// ReadTokens reads shards and their tokens.
func ReadTokens(r Rows) (map[int]int64, error) {
	tokens := make(map[int]int64)
	return tokens, r.Each(func(rows Row) error {
		var shard int
		var token int64
		err := rows.Scan(&shard, &token)
		tokens[shard] = token
		return err
	})
}

// ReadLeasable reads shards that have messages. The query returns at least one row while the hold is valid.
func ReadLeasable(r Rows) (Leasable, error) {
	found := Leasable{Tokens: make(map[int]int64)}
	alive := false
	err := r.Each(func(rows Row) error {
		var shard, token sql.NullInt64
		if err := rows.Scan(&alive, &found.Due, &shard, &token); err != nil {
			return err
		}
		if shard.Valid {
			found.Tokens[int(shard.Int64)] = token.Int64
		}
		return nil
	})
	if err == nil && !alive {
		err = driver.ErrLeaseLost
	}
	return found, err
}

// ReadDue reads the due times and numbers of delayed messages.
func ReadDue(r Rows) (due [][2]int64, _ error) {
	err := r.Each(func(rows Row) error {
		var at, seq int64
		err := rows.Scan(&at, &seq)
		due = append(due, [2]int64{at, seq})
		return err
	})
	return due, err
}

// ReadParked reads parked messages.
func ReadParked(r Rows) (parked []outbox.ParkedMessage, _ error) {
	err := r.Each(func(rows Row) error {
		m, err := scanParked(rows)
		parked = append(parked, m)
		return err
	})
	return parked, err
}

func scanParked(rows Row) (m outbox.ParkedMessage, err error) {
	var key []byte
	var headers sql.NullString
	var behind sql.NullInt64
	var enqueued, parked Instant
	if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &enqueued, &m.Attempts, &m.Error,
		&behind, &m.Waiting, &parked); err != nil {
		return m, err
	}
	m.OrderingKey, m.Behind, m.Enqueued, m.ParkedAt = string(key), behind.Int64, enqueued.Time, parked.Time
	m.Headers, m.Unreadable = DecodeHeaders(headers.String)
	return m, nil
}
