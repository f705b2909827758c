package outbox

import (
	"maps"
	"strconv"
	"time"
)

// HeaderFormat returns the headers of a published message. It must return the same for each publication of a message,
// must not change Headers of its argument, and must be safe for concurrent use. It should keep the message's own
// headers, except those that it sets itself.
type HeaderFormat func(Stored) map[string]string

// PlainHeaders is the default: HeaderID, HeaderSequence and HeaderEnqueued, and the message's own headers.
func PlainHeaders(m Stored) map[string]string {
	headers := make(map[string]string, len(m.Headers)+3)
	maps.Copy(headers, m.Headers)
	headers[HeaderID] = m.ID
	headers[HeaderSequence] = strconv.FormatInt(m.Seq, 10)
	headers[HeaderEnqueued] = m.Enqueued.UTC().Format(time.RFC3339Nano)
	return headers
}
