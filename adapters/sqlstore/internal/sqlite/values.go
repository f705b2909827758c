package sqlite

import (
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

func (d *DB) Key(k [16]byte) any { return k[:] }

func (d *DB) Keys(ks []dedup.KeyHash) any { return engine.KeyList(ks) }

func (d *DB) Time(t time.Time) any { return engine.MicrosOrNull(t) }
