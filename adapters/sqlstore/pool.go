package sqlstore

import (
	"github.com/txonce/txonce/dedup/driver"
)

var _ driver.PoolReporter = (*Store)(nil)

// PoolUse implements driver.PoolReporter.
func (s *Store) PoolUse() (inUse, most int) {
	stats := s.cfg.DB.Stats()
	return stats.InUse, stats.MaxOpenConnections
}
