package sqlstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/outbox"
)

// errNoShards is what tables say that are there, but not as the migrations leave them.
var errNoShards = claims.DatabaseErrorf("%w: txonce_shards or outbox_seq is empty; %s", dedup.ErrSchema, howToMigrate)

// encodeHeaders returns nil, for NULL, where there are none.
func encodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	encoded, err := consumer.EncodeHeaders(headers)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: enqueue: %w", err)
	}
	return encoded, nil
}

func decodeHeaders(encoded string) (map[string]string, error) {
	if encoded == "" {
		return nil, nil
	}
	return consumer.DecodeHeaders([]byte(encoded))
}

// clampTime brings t within what databases can keep.
func clampTime(t time.Time) time.Time {
	switch last := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC); {
	case t.After(last):
		return last
	case t.Unix() <= 0:
		return time.Time{}
	}
	return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) // never earlier than t
}

// outboxRoom is what is left of a Want.
type outboxRoom struct {
	limit, bytes int
	some, full   bool
}

// take reports whether a message of so many bytes fits in. The first one always does.
func (r *outboxRoom) take(size int) bool {
	if r.some && r.bytes > 0 && size > r.bytes {
		r.full = true
		return false
	}
	r.some = true
	r.limit--
	if r.bytes > 0 {
		r.bytes -= size
		r.full = r.bytes <= 0
	}
	r.full = r.full || r.limit == 0
	return true
}

var errNoCause = errors.New("no cause was stated")

// outboxCause is what the table says about a failure.
func outboxCause(err error) string { return text(cmp.Or(err, errNoCause).Error()) }

// attempts after what out says. They are set from what was leased, so that settling twice counts once.
func attempts(out *outbox.Outcome) int {
	if out.Blameless {
		return out.Attempts
	}
	return out.Attempts + 1
}

// since and until are bounds in microseconds; the zero time is none.
func since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func until(t time.Time) int64 {
	if t.IsZero() {
		return math.MaxInt64
	}
	return t.UnixMicro()
}

// nullTime is NULL for the zero time.
func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }
