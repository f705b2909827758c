package rabbitmq

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/consumer"
)

// ToMessage converts raw, as it was received from queue, for programs that receive by themselves and call a Processor.
// The result is the same on every delivery, also for the copy that a Subscriber made to defer the message.
//
// Topic is the routing key that the message was published with, or the queue when that is empty. ID is its message-id.
// Without a message-id nothing tells two messages of equal content apart. Position then differs on every delivery, and
// a message without a business key that is delivered twice can become two dead letters: publishers should set
// message-id.
//
// Headers holds header values as text: strings and bytes as they are, numbers and booleans in decimal and as true or
// false, times in RFC 3339, tables and arrays as JSON. It also holds properties under their AMQP names, such as
// content-type and correlation-id, unless a header has that name.
//
// Attempt counts the earlier deliveries, as far as the server says, because a program that receives by itself gives
// failed messages back. That includes deliveries that came back because a connection or a process was lost, so such a
// program should allow for some more attempts. A Subscriber counts only failures.
func ToMessage(queue string, raw *amqp.Delivery) *consumer.Message {
	msg := toMessage(queue, raw)
	msg.Attempt += earlier(raw)
	return msg
}

// toMessage is ToMessage, but Attempt counts only those failures that made a Subscriber defer the message. RabbitMQ's
// own count also grows with each lost connection, channel or process, and with each stop.
func toMessage(queue string, raw *amqp.Delivery) *consumer.Message {
	st, headers := readStamp(raw)
	msg := &consumer.Message{
		ID:          raw.MessageId,
		Topic:       raw.RoutingKey,
		OrderingKey: inText(headers[HeaderKey]),
		Position:    queue + "/" + raw.MessageId,
		Payload:     raw.Body,
		Headers:     textHeaders(raw, st, headers),
		Time:        timeOf(raw.Timestamp),
		Attempt:     1,
		Raw:         raw,
	}
	if raw.MessageId == "" {
		msg.Position = queue + "/~" + rand.Text()
	}
	if st != nil {
		msg.Topic, msg.Attempt = st.key, st.attempt
		if raw.MessageId == "" && st.position != "" { // anybody can write a stamp
			msg.Position = st.position
		}
	}
	if msg.Topic == "" {
		msg.Topic = queue
	}
	return msg
}

// earlier is how often raw was delivered before, as far as the server says.
func earlier(raw *amqp.Delivery) int {
	switch n, counted := number(raw.Headers[headerDeliveries]); {
	case counted:
		return int(min(max(n, 0), math.MaxInt32))
	case raw.Redelivered:
		return 1
	}
	return 0
}

// headerDeliveries is set by quorum queues from the second delivery on.
const headerDeliveries = "x-delivery-count"

// headerOffset is set by streams.
const headerOffset = "x-stream-offset"

// number returns v if it is a whole number.
func number(v any) (int64, bool) {
	switch v := v.(type) {
	case byte:
		return int64(v), true
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	case int:
		return int64(v), true
	}
	return 0, false
}

// timeOf is the publisher's timestamp, which never changes. AMQP has whole seconds.
func timeOf(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t
}

// textHeaders returns a message's headers and properties as a handler gets them.
func textHeaders(raw *amqp.Delivery, st *stamp, headers amqp.Table) map[string]string {
	out := make(map[string]string, len(headers)+1)
	user, expiration := raw.UserId, raw.Expiration
	if st != nil {
		user, expiration = st.user, st.expiration
	}
	for _, property := range []struct{ name, value string }{
		{"content-type", raw.ContentType},
		{"content-encoding", raw.ContentEncoding},
		{"correlation-id", raw.CorrelationId},
		{"reply-to", raw.ReplyTo},
		{"type", raw.Type},
		{"user-id", user},
		{"expiration", expiration},
		{"app-id", raw.AppId},
	} {
		if property.value != "" {
			out[property.name] = property.value
		}
	}
	for name, v := range headers {
		if name != HeaderKey {
			out[name] = inText(v)
		}
	}
	return out
}

// inText returns a header's value as text. Different values of one type have different texts.
func inText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case amqp.Decimal:
		return decimal(v)
	case amqp.Table, []any:
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(jsonable(v)); err != nil {
			return fmt.Sprint(v)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	if n, whole := number(v); whole {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprint(v)
}

// decimal writes 12345 with scale 2 as 123.45.
func decimal(d amqp.Decimal) string {
	digits := strconv.FormatUint(uint64(uint32(d.Value)), 10)
	if d.Value < 0 {
		digits = strconv.FormatInt(-int64(d.Value), 10)
	}
	if missing := int(d.Scale) + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	point := len(digits) - int(d.Scale)
	out := digits[:point]
	if d.Scale > 0 {
		out += "." + digits[point:]
	}
	if d.Value < 0 {
		out = "-" + out
	}
	return out
}

// jsonable converts a value inside a table or an array to one that encoding/json encodes, in the same way each time.
func jsonable(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		object := make(map[string]any, len(v))
		for name, member := range v {
			object[name] = jsonable(member)
		}
		return object
	case []any:
		list := make([]any, len(v))
		for i, member := range v {
			list[i] = jsonable(member)
		}
		return list
	case nil, bool:
		return v
	case string:
		return jsonText(v)
	case []byte:
		return jsonText(string(v))
	case float32, float64:
		if n := json.Number(inText(v)); !strings.ContainsAny(string(n), "NI") { // neither NaN nor infinite
			return n
		}
	}
	if n, whole := number(v); whole {
		return n
	}
	return inText(v)
}

func jsonText(s string) any {
	if utf8.ValidString(s) {
		return s
	}
	return map[string]string{"base64": base64.StdEncoding.EncodeToString([]byte(s))}
}
