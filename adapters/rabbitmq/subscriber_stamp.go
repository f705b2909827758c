package rabbitmq

import (
	"maps"
	"math"

	amqp "github.com/rabbitmq/amqp091-go"
)

// headerStamp is a table in the headers of the copies in which a Subscriber puts messages off. It never reaches a Processor.
const headerStamp = "x-txonce-retry"

// stamp is what a copy has to remember because publishing it, and its way through a queue for retries, change it.
type stamp struct {
	attempt    int    // that the copy is for
	position   string // of a message without message-id
	key        string // the routing key of the message itself
	user       string // its user-id, which only its publisher may set
	expiration string // its own; that of a copy is the delay
	kept       amqp.Table
}

// steered are headers that the server writes into a copy, or takes for instructions: CC names further queues that get it.
var steered = []string{
	"CC", "BCC", "x-death",
	"x-first-death-queue", "x-first-death-reason", "x-first-death-exchange",
	"x-last-death-queue", "x-last-death-reason", "x-last-death-exchange",
}

// volatile are headers that the server writes, and that differ from one delivery to the next.
var volatile = []string{headerDeliveries, "x-acquired-count", headerStamp}

// readStamp returns what a message remembers, nil if it is no copy, and its headers as they were when it was published.
func readStamp(raw *amqp.Delivery) (*stamp, amqp.Table) {
	headers := maps.Clone(raw.Headers)
	for _, name := range volatile {
		delete(headers, name)
	}
	table, ok := raw.Headers[headerStamp].(amqp.Table)
	if !ok {
		return nil, headers
	}
	for _, name := range steered {
		delete(headers, name)
	}
	st := &stamp{position: inText(table["position"]), key: inText(table["key"]), user: inText(table["user"]), expiration: inText(table["expiration"])}
	attempt, _ := number(table["attempt"])
	st.attempt = int(min(max(attempt, 1), math.MaxInt32))
	st.kept, _ = table["kept"].(amqp.Table)
	if headers == nil {
		headers = amqp.Table{}
	}
	maps.Copy(headers, st.kept)
	for _, name := range volatile { // a stamp may be of anybody's making
		delete(headers, name)
	}
	return st, headers
}

// putOff is the copy of d that is to be delivered as this attempt. It does not expire in the queue, whatever the message's own
// expiration says: that bounds how long a message waits to be received, and this one was received in time. From now on it is handled or
// parked, and never dropped.
func putOff(d *delivery, attempt int) amqp.Publishing {
	raw := d.raw
	st, headers := readStamp(raw)
	if st == nil {
		st = &stamp{key: raw.RoutingKey, user: raw.UserId, expiration: raw.Expiration}
	}
	kept := amqp.Table{}
	for _, name := range steered {
		if v, there := headers[name]; there {
			kept[name] = v
			delete(headers, name)
		}
	}
	if headers == nil {
		headers = amqp.Table{}
	}
	headers[headerStamp] = amqp.Table{
		"attempt": int64(attempt), "position": d.msg.Position, "key": st.key, "user": st.user, "expiration": st.expiration, "kept": kept,
	}
	return amqp.Publishing{
		Headers: headers, ContentType: raw.ContentType, ContentEncoding: raw.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: raw.Priority, CorrelationId: raw.CorrelationId, ReplyTo: raw.ReplyTo, MessageId: raw.MessageId,
		Timestamp: raw.Timestamp, Type: raw.Type, AppId: raw.AppId, Body: raw.Body,
	}
}
