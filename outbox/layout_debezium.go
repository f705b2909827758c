package outbox

// DebeziumID is the header in which Debezium's outbox event router puts an event's id.
const DebeziumID = "id"

// Debezium is the HeaderFormat of Debezium's outbox event router, for readers that were written for it: the message's ID is in the header
// DebeziumID. Topic, key and payload of a Message are those of the record in both. What the router places in further
// headers (table.fields.additional.placement), such as eventType, are the message's own headers here, under their own names. Those of
// PlainHeaders stand beside.
//
// docs/interop.md says how a Debezium connector is set up for the outbox table itself.
func Debezium(m Leased) map[string]string {
	headers := PlainHeaders(m)
	headers[DebeziumID] = m.ID
	return headers
}

var _ HeaderFormat = Debezium
