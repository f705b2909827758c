package engine

import (
	"database/sql"

	"github.com/txonce/txonce/outbox"
)

// ScanShard adds a row of txonce_shards.
func (s *Share) ScanShard(rows *sql.Rows) error {
	var shard int
	var token int64
	var mine, free bool
	err := rows.Scan(&shard, &token, &mine, &free)
	s.add(shard, token, mine, free)
	return err
}

// ScanReturned is ScanShard for a database that counts how often messages have returned to a shard.
func (s *Share) ScanReturned(rows *sql.Rows) error {
	var shard int
	var token, returned int64
	var mine, free bool
	err := rows.Scan(&shard, &token, &mine, &free, &returned)
	s.add(shard, token, mine, free)
	if s.Returned == nil {
		s.Returned = make(map[int]int64)
	}
	s.Returned[shard] = returned
	return err
}

// ScanRelay adds a row of txonce_relays that belongs to another session.
func (s *Share) ScanRelay(rows *sql.Rows) error {
	var owner string
	var sameName bool
	var until int64
	err := rows.Scan(&owner, &sameName, &until)
	if s.Others[owner] = until; sameName {
		s.SameName++
	}
	return err
}

// NewShare returns an empty Share.
func NewShare() Share {
	return Share{Tokens: make(map[int]int64), Others: make(map[string]int64)}
}

// ReadTokens reads shards and their tokens.
func ReadTokens(r Rows) (map[int]int64, error) {
	tokens := make(map[int]int64)
	return tokens, r.Each(func(rows *sql.Rows) error {
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
	err := r.Each(func(rows *sql.Rows) error {
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
		err = outbox.ErrLeaseLost
	}
	return found, err
}

// ReadDue reads the due times and numbers of delayed messages.
func ReadDue(r Rows) (due [][2]int64, _ error) {
	err := r.Each(func(rows *sql.Rows) error {
		var at, seq int64
		err := rows.Scan(&at, &seq)
		due = append(due, [2]int64{at, seq})
		return err
	})
	return due, err
}

// ReadShards reads shard numbers.
func ReadShards(r Rows) (shards []int, _ error) {
	err := r.Each(func(rows *sql.Rows) error {
		var shard int
		err := rows.Scan(&shard)
		shards = append(shards, shard)
		return err
	})
	return shards, err
}

// ReadSeqs reads sequence numbers of messages.
func ReadSeqs(r Rows) (seqs []int64, _ error) {
	err := r.Each(func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	})
	return seqs, err
}

// ReadParked reads parked messages.
func ReadParked(r Rows) (parked []outbox.ParkedMessage, _ error) {
	err := r.Each(func(rows *sql.Rows) error {
		m, err := scanParked(rows)
		parked = append(parked, m)
		return err
	})
	return parked, err
}

func scanParked(rows *sql.Rows) (m outbox.ParkedMessage, err error) {
	var key []byte
	var headers sql.NullString
	var behind sql.NullInt64
	var enqueued, parked Instant
	if err := rows.Scan(&m.Shard, &m.Seq, &m.ID, &m.Topic, &key, &m.Payload, &headers, &enqueued, &m.Attempts, &m.Cause,
		&behind, &m.Waiting, &parked); err != nil {
		return m, err
	}
	m.Key, m.Behind, m.Enqueued, m.ParkedAt = string(key), behind.Int64, enqueued.Time, parked.Time
	m.Headers, m.Unreadable = DecodeHeaders(headers.String)
	return m, nil
}

// add adds a row of txonce_shards.
func (s *Share) add(shard int, token int64, mine, free bool) {
	s.Shards++
	switch {
	case mine:
		s.Tokens[shard] = token
	case free:
		s.Free = append(s.Free, shard)
	}
}
