package sqlstore

import (
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Keys go as hexadecimal digits: bytes would be text in the connection's character set on their way.
func (d *mysql) key(k [16]byte) any { return hex.EncodeToString(k[:]) }

func (d *mysql) keys(ks []dedup.KeyHash) any {
	list := make([]string, len(ks))
	for i, k := range ks {
		list[i] = hex.EncodeToString(k[:])
	}
	return jsonText(list)
}

func (d *mysql) time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}
