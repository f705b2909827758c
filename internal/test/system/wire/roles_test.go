package wire

import "github.com/txonce/txonce/internal/test/wireproxy"

// The statements that consumers and relays send. The first that matches counts.
var (
	postgresConsumer = &role{name: "consumer", boundaries: []boundary{
		{name: wireproxy.Connect, need: fresh},
		{name: commitBoundary},
		{name: "BEGIN", is: text(`^begin`)},
		{name: "ROLLBACK", is: text(`^rollback`), need: failure},
		{name: "claim", is: text(`insert into \S*processed_messages`)},
		{name: "dead letter", is: text(`insert into \S*dead_letters`), need: poison},
		{name: "known key", is: text(`from \S*processed_messages`), need: twin},
		{name: "effect", is: text(`^insert into effects`)},
		{name: "enqueue", is: text(`insert into \S*outbox_messages`)},
		{name: "notify", is: text(`pg_notify`)},
		{name: "checks of the session", is: text(`pg_my_temp_schema|txonce_session|txonce\.temporary`)},
		{name: other},
	}}
	postgresRelay = &role{name: "relay", boundaries: []boundary{
		{name: wireproxy.Connect, need: fresh},
		{name: commitBoundary},
		{name: "hold", is: text(`(insert into|update) \S*txonce_relays`)},
		{name: "lease", is: text(`select.* from \S*outbox_messages`)},
		{name: "settle", is: text(`(txonce\.settling|delete from \S*outbox_messages)`)},
		{name: "LISTEN", is: text(`^listen`), need: fresh},
		{name: other},
	}}
	mysqlConsumer = &role{name: "consumer", boundaries: []boundary{
		{name: wireproxy.Connect, need: fresh},
		{name: commitBoundary},
		{name: "BEGIN", is: text(`^(begin|start transaction)`)},
		{name: "ROLLBACK", is: text(`^rollback`), need: failure},
		{name: "claim", is: text(`insert into \S*processed_messages`)},
		{name: "dead letter", is: text(`insert into \S*dead_letters`), need: poison},
		{name: "known key", is: text(`from \S*processed_messages`), need: twin},
		{name: "effect", is: text(`^insert into effects`)},
		{name: "enqueue", is: text(`insert into \S*outbox_messages`)},
		{name: other},
	}}
	mysqlRelay = &role{name: "relay", boundaries: []boundary{
		{name: wireproxy.Connect, need: fresh},
		{name: commitBoundary},
		{name: "hold", is: text(`(insert into|update) \S*txonce_relays`)},
		{name: "lease", is: text(`select.* from \S*outbox_messages`)},
		{name: "settle", is: text(`delete .*outbox_messages`)},
		{name: other},
	}}
	kafkaRelay = &role{name: "relay", boundaries: []boundary{
		{name: wireproxy.Connect, need: fresh, silent: true},
		{name: "Produce", is: text(`^Produce$`)},
		{name: "Metadata", is: text(`^Metadata$`), need: fresh, refuses: true},
	}}
	rabbitRelay = &role{name: "relay", boundaries: []boundary{
		{name: wireproxy.Connect, need: fresh, silent: true},
		{name: wireproxy.Publish, is: text(`^publish$`), refuses: true},
	}}
)
