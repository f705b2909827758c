package outbox

// debeziumID is the header that Debezium's outbox event router writes an event's id to.
const debeziumID = "id"

// Debezium is the HeaderFormat for readers that were written for Debezium's outbox event router. It adds the message's
// ID in the header "id" to the headers of PlainHeaders. Topic, key and payload of the record are those of the Message.
// Where the router puts columns into further headers (table.fields.additional.placement), such as eventType, use the
// message's own headers.
//
// docs/interop.md says how to configure a Debezium connector for the outbox table itself.
func Debezium(m Stored) map[string]string {
	headers := PlainHeaders(m)
	headers[debeziumID] = m.ID
	return headers
}

var _ HeaderFormat = Debezium
