package outbox

import (
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Headers of a CloudEvent in Kafka's binary mode. The event's data is the payload.
const (
	ceSpecVersion = "ce_specversion"
	ceID          = "ce_id"
	ceSource      = "ce_source"
	ceType        = "ce_type"
	ceSubject     = "ce_subject"
	ceTime        = "ce_time"
)

// CloudEvents returns the HeaderFormat of CloudEvents 1.0 in Kafka's binary content mode. It adds to the headers of
// PlainHeaders:
//
//	ce_specversion  1.0
//	ce_id           Message.ID; readers recognize repeats by ID and source
//	ce_source       source
//	ce_type         Message.Topic
//	ce_subject      Message.OrderingKey, if it is text
//	ce_time         when the message was enqueued
//
// When a message has its own ce_type, ce_subject, ce_source or ce_time, that value is kept. Its other headers that
// begin with "ce_" are extension attributes, whose names must be lower-case letters and digits. The type of the data is
// the message's own header content-type; there is no default.
//
// source is a URI reference that names the service which writes this outbox, such as "/billing". CloudEvents panics
// when it is none, because that is a mistake in the program.
func CloudEvents(source string) HeaderFormat {
	if u, err := url.Parse(source); err != nil || source == "" || u.String() == "" {
		panic(fmt.Sprintf("outbox: CloudEvents: source %q is no URI reference, such as \"/billing\"", source))
	}
	return func(m Stored) map[string]string {
		headers := PlainHeaders(m)
		headers[ceSpecVersion], headers[ceID] = "1.0", m.ID
		unlessOwn(headers, ceSource, source)
		unlessOwn(headers, ceType, m.Topic)
		unlessOwn(headers, ceTime, m.Enqueued.UTC().Format(time.RFC3339Nano))
		if isText(m.OrderingKey) {
			unlessOwn(headers, ceSubject, m.OrderingKey)
		}
		return headers
	}
}

func unlessOwn(headers map[string]string, name, value string) {
	if headers[name] == "" {
		headers[name] = value
	}
}

// isText reports whether s can be the value of a CloudEvent attribute.
func isText(s string) bool {
	return s != "" && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
