package pgxstore_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
)

// fenced returns the text of the first block in that language in the section of docs/interop.md about Debezium.
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

// captured reads the insertions that pgoutput streams for a publication, and returns the ids by table, in their order.
func captured(t *testing.T, conn *pgx.Conn, slot, publication string) map[string][]string {
	t.Helper()
	rows, _ := conn.Query(t.Context(), `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL, 'proto_version', '1', 'publication_names', $2)`, slot, publication)
	type relation struct {
		name string
		id   int // the index of the column id
	}
	relations, ids := map[uint32]relation{}, map[string][]string{}
	var data []byte
	_, err := pgx.ForEachRow(rows, []any{&data}, func() error {
		r := streamed{rest: data[1:]}
		switch data[0] {
		case 'R': // a relation: its number, schema, name and columns
			number := r.uint32()
			r.text()
			of := relation{name: r.text()}
			r.take(1)
			for i := range int(r.uint16()) {
				r.take(1)
				if r.text() == "id" {
					of.id = i
				}
				r.take(8)
			}
			relations[number] = of
		case 'I': // an insertion: the relation's number, and the columns' values as text
			of := relations[r.uint32()]
			r.take(1)
			for i := range int(r.uint16()) {
				if r.take(1)[0] != 't' {
					continue // NULL
				}
				if value := r.take(int(r.uint32())); i == of.id {
					ids[of.name] = append(ids[of.name], string(value))
				}
			}
		case 'U', 'D', 'T':
			ids[string(data[:1])] = append(ids[string(data[:1])], "?")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// streamed reads the rest of a message of pgoutput.
type streamed struct{ rest []byte }

func (s *streamed) take(n int) []byte {
	taken := s.rest[:n]
	s.rest = s.rest[n:]
	return taken
}

func (s *streamed) uint16() uint16 { return binary.BigEndian.Uint16(s.take(2)) }
func (s *streamed) uint32() uint32 { return binary.BigEndian.Uint32(s.take(4)) }

func (s *streamed) text() string {
	text := string(s.take(bytes.IndexByte(s.rest, 0)))
	s.take(1)
	return text
}

// The recipe of docs/interop.md captures each message once, under a name that the connector's properties let through,
// and captures no deletion.
func TestOutboxDebeziumRecipeCapturesEachMessage(t *testing.T) {
	// This test runs its own server: a slot that is created while other tests create tables may be unable to read them.
	db := newOutboxDBAt(t, testdb.StartPostgres(t, "wal_level=logical").DSN, 4)
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
	if _, err := conn.Exec(t.Context(), `SELECT pg_create_logical_replication_slot($1, 'pgoutput', true)`,
		slot); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 21 {
		want = append(want, fmt.Sprint("m", i))
		if err := db.inTx(t.Context(), func(tx pgx.Tx) error {
			return db.store.Enqueue(t.Context(), tx,
				outbox.Message{ID: want[i], Topic: "orders", OrderingKey: fmt.Sprint("k", i%3), Payload: []byte("{}")})
		}); err != nil {
			t.Fatal(err)
		}
	}
	db.exec(t, `DELETE FROM outbox_messages`) // deletes the captured messages, which must produce no event
	got := captured(t, conn, slot, properties["publication.name"])
	_, table, _ := strings.Cut(properties["table.include.list"], ".")
	if len(got) != 1 || !slices.Equal(got[table], want) {
		t.Errorf("captured %v; want each of the 21 messages once, of %s", got, table)
	}
	if got := captured(t, conn, slot, "plain"); len(got["D"]) != len(want) {
		t.Errorf("captured %d deletions of 21 by another publication; publish = 'insert' is not needed then",
			len(got["D"]))
	}
}
