package pgxstore

import "github.com/txonce/txonce/dedup"

var _ dedup.PoolReporter = (*Store)(nil)

// PoolUse implements dedup.PoolReporter.
func (s *Store) PoolUse() (inUse, most int) {
	stat := s.cfg.Pool.Stat()
	return int(stat.AcquiredConns()), int(stat.MaxConns())
}
