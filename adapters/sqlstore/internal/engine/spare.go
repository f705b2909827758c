package engine

import (
	"context"
	"database/sql"
	"fmt"
)

// Spare limits the open transactions so that one connection of the pool stays free to read the horizon, which isolation
// levels above READ COMMITTED need. A nil Spare sets no limit.
type Spare chan struct{}

func NewSpare(cfg *Config) (Spare, error) {
	switch cfg.Isolation {
	case sql.LevelDefault, sql.LevelReadCommitted:
		return nil, nil
	case sql.LevelRepeatableRead, sql.LevelSerializable:
	default:
		return nil, fmt.Errorf("sqlstore: Config.Isolation %v: want Read Committed, Repeatable Read or Serializable",
			cfg.Isolation)
	}
	switch most := cfg.DB.Stats().MaxOpenConnections; {
	case most == 1:
		return nil, fmt.Errorf("sqlstore: Config.Isolation %v needs a Config.DB of at least 2 connections",
			cfg.Isolation)
	case most > 1:
		return make(Spare, most-1), nil
	}
	return nil, nil
}

func (s Spare) Enter(ctx context.Context) (leave func(), err error) {
	if s == nil {
		return func() {}, ctx.Err()
	}
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
