package mysql

import (
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

// Key returns hexadecimal digits, because the server could convert bytes from the connection's character set.
func (d *DB) Key(k [16]byte) any { return hex.EncodeToString(k[:]) }

func (d *DB) Keys(ks []dedup.KeyHash) any { return engine.KeyList(ks) }

func (d *DB) Time(t time.Time) any { return engine.MicrosOrNull(t) }
