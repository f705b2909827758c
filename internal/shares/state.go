package shares

// Row is a row of a query's result. *sql.Rows and pgx.Rows are such rows.
type Row = interface{ Scan(dest ...any) error }

// State is what the tables say about all shards and sessions, as a session reads it in Renew.
type State struct {
	Tokens   map[int]int64    // of the session's shards, by shard
	Free     []int            // shards that no living session holds
	Self     string           // see View
	Others   map[string]int64 // see View
	Returned map[int]int64    // by shard, how often messages have returned to it; only PostgreSQL counts that
	Shards   int              // number of shards
	SameName int              // number of other sessions with this session's name
}

// NewState returns a State without shards and sessions.
func NewState() State {
	return State{Tokens: map[int]int64{}, Others: map[string]int64{}, Returned: map[int]int64{}}
}

// ScanRelay adds a row of txonce_relays: its owner, whether it has this session's name, when its hold expires, and
// whether it is this session's.
func (s *State) ScanRelay(row Row) error {
	var owner string
	var sameName, mine bool
	var until int64
	err := row.Scan(&owner, &sameName, &until, &mine)
	if mine {
		s.Self = owner
		return err
	}
	if s.Others[owner] = until; sameName {
		s.SameName++
	}
	return err
}

// ScanShard adds a row of txonce_shards: its number, its token, whether the session holds it, and whether it is free.
func (s *State) ScanShard(row Row) error {
	_, err := s.scanShard(row)
	return err
}

// ScanReturned is ScanShard for a row that ends with how often messages have returned to the shard.
func (s *State) ScanReturned(row Row) error {
	var returned int64
	shard, err := s.scanShard(row, &returned)
	s.Returned[shard] = returned
	return err
}

func (s *State) scanShard(row Row, more ...any) (shard int, err error) {
	var token int64
	var mine, free bool
	err = row.Scan(append([]any{&shard, &token, &mine, &free}, more...)...)
	s.Shards++
	switch {
	case mine:
		s.Tokens[shard] = token
	case free:
		s.Free = append(s.Free, shard)
	}
	return shard, err
}

// Change returns how many shards a session with this Ledger must take now. A negative number is how many it must give
// back.
func (s *State) Change(l *Ledger) int {
	return l.Change(View{Of: s.Shards, Self: s.Self, Mine: len(s.Tokens), Free: s.Free, Others: s.Others})
}
