package outbox

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Headers of a CloudEvent in Kafka's binary mode. The event's data is the payload, as it is.
const (
	ceSpecVersion = "ce_specversion"
	ceID          = "ce_id"
	ceSource      = "ce_source"
	ceType        = "ce_type"
	ceSubject     = "ce_subject"
	ceTime        = "ce_time"
)

// CloudEvents returns the HeaderFormat of CloudEvents 1.0 in Kafka's binary content mode, beside the headers of PlainHeaders:
//
//	ce_specversion  1.0
//	ce_id           Message.ID: with the source it is what readers tell repeats by
//	ce_source       source
//	ce_type         Message.Topic
//	ce_subject      Message.Key, if that is text
//	ce_time         when the message was enqueued
//
// A message's own headers ce_type, ce_subject, ce_source and ce_time stand instead; so do other headers that begin with "ce_",
// which are extensions and need names of lower-case letters and digits. The type of the data is the message's own header
// content-type; none is guessed.
//
// source is a URI reference that names whoever writes this outbox, such as "/billing". An impossible one panics, as it is a
// mistake in the program.
func CloudEvents(source string) HeaderFormat {
	if u, err := url.Parse(source); err != nil || source == "" || u.String() == "" {
		panic(fmt.Sprintf("outbox: CloudEvents: source %q is no URI reference, such as \"/billing\"", source))
	}
	return func(m Leased) map[string]string {
		headers := PlainHeaders(m)
		headers[ceSpecVersion], headers[ceID] = "1.0", m.ID
		unlessOwn(headers, ceSource, source)
		unlessOwn(headers, ceType, m.Topic)
		unlessOwn(headers, ceTime, m.Enqueued.UTC().Format(time.RFC3339Nano))
		if isText(m.Key) {
			unlessOwn(headers, ceSubject, m.Key)
		}
		return headers
	}
}

func unlessOwn(headers map[string]string, name, value string) {
	if headers[name] == "" {
		headers[name] = value
	}
}

// isText: s can be an attribute of a CloudEvent.
func isText(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
