package pgxstore_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
)

// fenced returns the text of the first block of that language in the part of docs/interop.md about Debezium.
func fenced(t *testing.T, language string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/interop.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(doc), "## Debezium\n")
	blocks := strings.Split(part, "```"+language+"\n")
	if len(blocks) < 2 {
		t.Fatalf("docs/interop.md has no block of %s about Debezium", language)
	}
	text, _, _ := strings.Cut(blocks[1], "```")
	return text
}

// captured are the insertions that pgoutput streams for a publication: ids by table, in their order.
func captured(t *testing.T, conn *pgx.Conn, slot, publication string) map[string][]string {
	t.Helper()
	rows, _ := conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, slot, publication)
	relations, ids := map[uint32]*pglogrepl.RelationMessage{}, map[string][]string{}
	var data []byte
	_, err := pgx.ForEachRow(rows, []any{&data}, func() error {
		msg, err := pglogrepl.Parse(data)
		if err != nil {
			return err
		}
		switch m := msg.(type) {
		case *pglogrepl.RelationMessage:
			relations[m.RelationID] = m
		case *pglogrepl.InsertMessage:
			table := relations[m.RelationID]
			for i, column := range table.Columns {
				if column.Name == "id" {
					ids[table.RelationName] = append(ids[table.RelationName], string(m.Tuple.Columns[i].Data))
				}
			}
		case *pglogrepl.UpdateMessage, *pglogrepl.DeleteMessage, *pglogrepl.TruncateMessage:
			ids[m.Type().String()] = append(ids[m.Type().String()], "?")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// The recipe of docs/interop.md captures each message once, under the name that the connector's properties let through; without its
// publication none is.
func TestOutboxDebeziumRecipeCapturesEachMessage(t *testing.T) {
	// A server of its own: a slot that is created while other tests create tables may be unable to read them.
	db := newOutboxDBAt(t, ownPostgres(t, "wal_level=logical"), 4)
	properties := map[string]string{}
	for line := range strings.Lines(fenced(t, "properties")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
			properties[name] = value
		}
	}
	if properties["plugin.name"] != "pgoutput" || properties["publication.autocreate.mode"] != "disabled" {
		t.Errorf("the connector would create a publication of its own: %v", properties)
	}
	db.exec(t, fenced(t, "sql"))
	db.exec(t, `CREATE PUBLICATION plain FOR TABLE outbox_messages`)
	conn, err := pgx.Connect(t.Context(), db.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const slot = "capture"
	if _, err := conn.Exec(t.Context(), `SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)`, slot); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 21 {
		want = append(want, fmt.Sprint("m", i))
		if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
			return db.store.Enqueue(t.Context(), tx, outbox.Message{ID: want[i], Topic: "orders", Key: fmt.Sprint("k", i%3), Payload: []byte("{}")})
		}); err != nil {
			t.Fatal(err)
		}
	}
	db.exec(t, `DELETE FROM outbox_messages`) // what was captured is cleared up; that is no event
	got := captured(t, conn, slot, properties["publication.name"])
	_, table, _ := strings.Cut(properties["table.include.list"], ".")
	if len(got) != 1 || !slices.Equal(got[table], want) {
		t.Errorf("captured %v; want each of the 21 messages once, of %s", got, table)
	}
	if got := captured(t, conn, slot, "plain"); len(got[table]) != 0 {
		t.Errorf("captured %v of %s without publish_via_partition_root; then it is not needed", got, table)
	}
}
