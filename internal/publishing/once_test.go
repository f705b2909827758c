package publishing_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// A repeat of a row has the same id; another row has another one, whatever its ID is.
func TestOnce(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	row := func(seq int64, at time.Time) string {
		m := outbox.Message{ID: "order-1", Payload: []byte("x")}
		m.Headers = outbox.PlainHeaders(outbox.Stored{Message: m, Seq: seq, Enqueued: at})
		return publishing.Once(&m)
	}
	if row(7, at) != row(7, at.In(time.FixedZone("", 3600))) {
		t.Error("a repeat has another id")
	}
	if row(7, at) == row(8, at) || row(7, at) == row(7, at.Add(time.Microsecond)) {
		t.Error("two rows have one id")
	}
	bare := func(payload string, headers map[string]string) string {
		return publishing.Once(&outbox.Message{ID: "order-1", Payload: []byte(payload), Headers: headers})
	}
	once, again := bare("x", nil), bare("x", nil)
	if once != again || once == bare("y", nil) || bare("x", map[string]string{"a": "b"}) == bare("x",
		map[string]string{"ab": ""}) {
		t.Error("without the headers of a row, the content tells rows apart")
	}
}
