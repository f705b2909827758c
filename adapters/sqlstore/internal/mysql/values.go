package mysql

import (
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/dedup"
)

// Keys go as hexadecimal digits: bytes would be text in the connection's character set on their way.
func (d *DB) Key(k [16]byte) any { return hex.EncodeToString(k[:]) }

func (d *DB) Keys(ks []dedup.KeyHash) any { return engine.KeyList(ks) }

func (d *DB) Time(t time.Time) any { return engine.MicrosOrNull(t) }
