package engine

import (
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/dedup/driver"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

// EncodeHeaders returns nil, which is stored as NULL, if there are no headers.
func EncodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	encoded, err := driver.EncodeHeaders(headers)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: enqueue: %w", err)
	}
	return encoded, nil
}

func DecodeHeaders(encoded string) (map[string]string, error) {
	if encoded == "" {
		return nil, nil
	}
	return driver.DecodeHeaders([]byte(encoded))
}

// ClampTime returns a time that databases can store: t rounded up to microseconds, or a bound if t is out of range.
func ClampTime(t time.Time) time.Time {
	switch last := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC); {
	case t.After(last):
		return last
	case t.Unix() <= 0:
		return time.Time{}
	}
	return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) // never earlier than t
}

// Room is the rest of the limits in an driver.Want.
type Room struct {
	Full bool

	limit, bytes int
	some         bool
}

// NewRoom returns a Room with the limits of want.
func NewRoom(want outboxdriver.Want) Room { return Room{limit: want.Limit, bytes: want.Bytes} }

// Take reports whether a message of this size fits, and subtracts it. The first message always fits.
func (r *Room) Take(size int) bool {
	if r.some && r.bytes > 0 && size > r.bytes {
		r.Full = true
		return false
	}
	r.some = true
	r.limit--
	if r.bytes > 0 {
		r.bytes -= size
		r.Full = r.bytes <= 0
	}
	r.Full = r.Full || r.limit == 0
	return true
}

// Since returns a lower bound in microseconds; the zero time sets no bound.
func Since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Until returns an upper bound in microseconds; the zero time sets no bound.
func Until(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixMicro()
}

// NullTime returns NULL for the zero time.
func NullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }
