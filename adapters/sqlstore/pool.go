package sqlstore

import "github.com/txonce/txonce/dedup"

var _ dedup.PoolReporter = (*Store)(nil)

// PoolUse implements dedup.PoolReporter.
func (s *Store) PoolUse() (inUse, most int) {
	stats := s.cfg.DB.Stats()
	return stats.InUse, stats.MaxOpenConnections
}
