package outbox

import (
	"maps"
	"strconv"
	"time"
)

// HeaderFormat makes the headers under which a message is published. It must return the same for each publication of a message,
// and must not change Headers of its argument. Headers of the message itself stand, unless the layout's readers need another value.
type HeaderFormat func(Leased) map[string]string

// PlainHeaders is the default: HeaderID, HeaderSequence and HeaderEnqueued beside the message's own headers.
func PlainHeaders(m Leased) map[string]string {
	headers := make(map[string]string, len(m.Headers)+3)
	maps.Copy(headers, m.Headers)
	headers[HeaderID] = m.ID
	headers[HeaderSequence] = strconv.FormatInt(m.Seq, 10)
	headers[HeaderEnqueued] = m.Enqueued.UTC().Format(time.RFC3339Nano)
	return headers
}
