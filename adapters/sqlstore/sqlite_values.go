package sqlstore

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

func (d *sqlite) key(k [16]byte) any { return k[:] }

func (d *sqlite) keys(ks []dedup.KeyHash) any {
	list := make([]string, len(ks))
	for i, k := range ks {
		list[i] = hex.EncodeToString(k[:])
	}
	return jsonText(list)
}

func (d *sqlite) time(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// micros is 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func ceilMicros(d time.Duration) int64 { return int64((d-1)/time.Microsecond) + 1 }

// jsonText is for values that always have a JSON form.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("sqlstore: %T as JSON: %v", v, err))
	}
	return string(b)
}
