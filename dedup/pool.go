package dedup

// PoolReporter is a Store that knows how much of its connection pool is in use; found by type assertion.
type PoolReporter interface {
	// PoolUse returns how many connections of the pool are in use, and how many there may be at most; 0: no limit. Where
	// all are in use, whoever wants one more waits: a handler that uses the pool instead of its transaction may wait
	// for ever. It does not touch the database, and is safe for concurrent use.
	PoolUse() (inUse, most int)
}
