package rabbitmq

import (
	"maps"
	"math"

	amqp "github.com/rabbitmq/amqp091-go"
)

// headerStamp is a table in the headers of the copies that a Subscriber makes to defer messages. A Processor never sees
// it.
const headerStamp = "x-txonce-retry"

// stamp holds the properties of the message that change when a copy is published and goes through a retry queue.
type stamp struct {
	attempt    int        // the number of the copy's next attempt
	position   string     // of a message without message-id
	key        string     // the message's routing key
	user       string     // its user-id, which only its publisher may set
	expiration string     // its expiration; that of the copy is the delay
	kept       amqp.Table // headers that the server would act on or overwrite
}

// serverHeaders are headers that the server writes into a copy, or acts on: CC names further queues that get the
// message.
var serverHeaders = []string{
	"CC", "BCC", "x-death",
	"x-first-death-queue", "x-first-death-reason", "x-first-death-exchange",
	"x-last-death-queue", "x-last-death-reason", "x-last-death-exchange",
}

// volatile are headers that differ from one delivery to the next.
var volatile = []string{headerDeliveries, "x-acquired-count", headerStamp}

// readStamp returns the stamp of a message, nil if it is no copy, and its headers as they were when it was published.
func readStamp(raw *amqp.Delivery) (*stamp, amqp.Table) {
	headers := maps.Clone(raw.Headers)
	for _, name := range volatile {
		delete(headers, name)
	}
	table, ok := raw.Headers[headerStamp].(amqp.Table)
	if !ok {
		return nil, headers
	}
	for _, name := range serverHeaders {
		delete(headers, name)
	}
	st := &stamp{
		position: inText(table["position"]), key: inText(table["key"]), user: inText(table["user"]),
		expiration: inText(table["expiration"]),
	}
	attempt, _ := number(table["attempt"])
	st.attempt = int(min(max(attempt, 1), math.MaxInt32))
	st.kept, _ = table["kept"].(amqp.Table)
	if headers == nil {
		headers = amqp.Table{}
	}
	maps.Copy(headers, st.kept)
	for _, name := range volatile { // anybody can write a stamp
		delete(headers, name)
	}
	return st, headers
}

// deferredCopy is the copy of d that will be delivered as this attempt. It does not expire in the work queue, even if
// the message has an expiration: that limits how long a message waits to be received, and this one was received in
// time. From now on it is handled or parked, never dropped.
func deferredCopy(d *delivery, attempt int) amqp.Publishing {
	raw := d.raw
	st, headers := readStamp(raw)
	if st == nil {
		st = &stamp{key: raw.RoutingKey, user: raw.UserId, expiration: raw.Expiration}
	}
	kept := amqp.Table{}
	for _, name := range serverHeaders {
		if v, there := headers[name]; there {
			kept[name] = v
			delete(headers, name)
		}
	}
	if headers == nil {
		headers = amqp.Table{}
	}
	headers[headerStamp] = amqp.Table{
		"attempt": int64(attempt), "position": d.msg.Position, "key": st.key, "user": st.user,
		"expiration": st.expiration, "kept": kept,
	}
	return amqp.Publishing{
		Headers: headers, ContentType: raw.ContentType, ContentEncoding: raw.ContentEncoding,
		DeliveryMode: amqp.Persistent,
		Priority:     raw.Priority, CorrelationId: raw.CorrelationId, ReplyTo: raw.ReplyTo, MessageId: raw.MessageId,
		Timestamp: raw.Timestamp, Type: raw.Type, AppId: raw.AppId, Body: raw.Body,
	}
}
