package sqlstore

import (
	"database/sql"

	"github.com/txonce/txonce/outbox"
)

// scan notes a row of txonce_shards.
func (s *outboxShare) scan(rows *sql.Rows) error {
	var shard int
	var token int64
	var mine, free bool
	err := rows.Scan(&shard, &token, &mine, &free)
	s.add(shard, token, mine, free)
	return err
}

// scanRelay notes a row of txonce_relays, of another session.
func (s *outboxShare) scanRelay(rows *sql.Rows) error {
	var owner string
	var namesake bool
	var until int64
	err := rows.Scan(&owner, &namesake, &until)
	if s.others[owner] = until; namesake {
		s.sameName++
	}
	return err
}

func newOutboxShare() outboxShare {
	return outboxShare{tokens: make(map[int]int64), others: make(map[string]int64)}
}

func readTokens(rows *sql.Rows, err error) (map[int]int64, error) {
	tokens := make(map[int]int64)
	return tokens, each(rows, err, func(rows *sql.Rows) error {
		var shard int
		var token int64
		err := rows.Scan(&shard, &token)
		tokens[shard] = token
		return err
	})
}

// readSight has a row at least while the hold stands.
func readSight(rows *sql.Rows, err error) (outboxSight, error) {
	sight := outboxSight{tokens: make(map[int]int64)}
	alive := false
	err = each(rows, err, func(rows *sql.Rows) error {
		var shard, token sql.NullInt64
		if err := rows.Scan(&alive, &sight.due, &shard, &token); err != nil {
			return err
		}
		if shard.Valid {
			sight.tokens[int(shard.Int64)] = token.Int64
		}
		return nil
	})
	if err == nil && !alive {
		err = outbox.ErrLeaseLost
	}
	return sight, err
}

func readShards(rows *sql.Rows, err error) (shards []int, _ error) {
	err = each(rows, err, func(rows *sql.Rows) error {
		var shard int
		err := rows.Scan(&shard)
		shards = append(shards, shard)
		return err
	})
	return shards, err
}

func readSeqs(rows *sql.Rows, err error) (seqs []int64, _ error) {
	err = each(rows, err, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	})
	return seqs, err
}

func scanParked(rows *sql.Rows) (m outbox.ParkedMessage, err error) {
	var key []byte
	var headers sql.NullString
	var behind sql.NullInt64
	var enqueued, parked instant
	if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &enqueued, &m.Attempts, &m.Cause,
		&behind, &m.Waiting, &parked); err != nil {
		return m, err
	}
	m.Key, m.Behind, m.Enqueued, m.ParkedAt = string(key), behind.Int64, enqueued.Time, parked.Time
	m.Headers, m.Unreadable = decodeHeaders(headers.String)
	return m, nil
}
