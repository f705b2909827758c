package pgxstore

import (
	"github.com/txonce/txonce/dedup/driver"
)

var _ driver.PoolReporter = (*Store)(nil)

// PoolUse implements driver.PoolReporter.
func (s *Store) PoolUse() (inUse, most int) {
	stat := s.cfg.Pool.Stat()
	return int(stat.AcquiredConns()), int(stat.MaxConns())
}
