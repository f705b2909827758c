package debezium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/outbox"
)

// row is a row of outbox_messages in the form that Route.java reads.
type row struct {
	Shard    int16   `json:"shard"`
	Seq      int64   `json:"seq"`
	ID       string  `json:"id"`
	Topic    string  `json:"topic"`
	Key      []byte  `json:"key"`
	Payload  []byte  `json:"payload"`
	Headers  *string `json:"headers"`
	Enqueued string  `json:"enqueued_at"`
}

// record is a record that a Debezium connector would write.
type record struct {
	Topic      string
	Key, Value []byte
	Headers    []struct {
		Name  string
		Value []byte
	}
}

// In the Debezium format a relay publishes, record for record, what Debezium's own event router produces for the same
// rows.
func TestDebeziumPublisher(t *testing.T) {
	b := newBox(t)
	b.enqueue(t,
		outbox.Message{
			ID: "m1", Topic: b.topic, OrderingKey: "order 7", Payload: []byte(`{"amount":5}`),
			Headers: map[string]string{"eventType": "Charged", "own": "x y"},
		},
		outbox.Message{ID: "m2", Topic: b.topic, OrderingKey: "k\xff\x00", Payload: []byte{0, 1, 2, 0xff}},
		outbox.Message{ID: "m3", Topic: b.topic})
	rows, err := b.pool.Query(t.Context(), `SELECT shard, seq, id, topic, key, payload, headers::text,
		to_char(enqueued_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') FROM outbox_messages ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	inserted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil || len(inserted) != 3 {
		t.Fatalf("%d rows, want 3 (%v)", len(inserted), err)
	}
	routed := route(t, inserted)
	b.relay(t, outbox.Debezium, 3)
	published := b.read(t, 3)

	for i, want := range routed {
		got := published[i]
		if got.Topic != want.Topic || !bytes.Equal(got.Key, want.Key) || (got.Key == nil) != (want.Key == nil) ||
			!bytes.Equal(got.Value, want.Value) {
			t.Errorf("record %d: topic %s, key %q, value %q; the router makes %s, %q, %q", i, got.Topic, got.Key,
				got.Value, want.Topic, want.Key, want.Value)
		}
		have := map[string]string{}
		for _, h := range got.Headers {
			have[string(h.Key)] = string(h.Value)
		}
		wanted := map[string]string{}
		for _, h := range want.Headers {
			if h.Name != "headers" {
				wanted[h.Name] = string(h.Value)
				continue
			}
			// The router cannot split the column into headers; it puts all of it into one header, as JSON.
			var own map[string]string
			if h.Value != nil {
				if err := json.Unmarshal(h.Value, &own); err != nil {
					t.Fatal(err)
				}
			}
			maps.Copy(wanted, own)
		}
		for _, headers := range []map[string]string{have, wanted} { // the same instant can be written in several ways
			at, err := time.Parse(time.RFC3339Nano, headers[outbox.HeaderEnqueued])
			if err != nil {
				t.Error(err)
			}
			headers[outbox.HeaderEnqueued] = at.UTC().String()
		}
		if !maps.Equal(have, wanted) {
			t.Errorf("record %d: headers %q; the router makes %q", i, have, wanted)
		}
		if have["id"] != inserted[i].ID {
			t.Errorf("record %d: id %q", i, have["id"])
		}
	}
}

// The tested settings are the documented ones.
func TestDebeziumSettingsAreDocumented(t *testing.T) {
	settings, err := os.ReadFile(filepath.Join("testdata", "connector.properties"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "interop.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```properties\n"+string(settings)+"```\n") {
		t.Error("docs/interop.md does not show testdata/connector.properties as it is")
	}
}

// route sends rows through Debezium's event router.
func route(t *testing.T, rows []row) (records []record) {
	t.Helper()
	downloaded := jars(t, "eventrouter")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	in, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	program(t, "javac") // java compiles the source file itself, with the compiler that comes with javac
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program(t, "java"), "-cp", filepath.Join(downloaded, "*"),
		filepath.Join("testdata", "eventrouter", "Route.java"), filepath.Join("testdata", "connector.properties"))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &records); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(records) != len(rows) {
		t.Fatalf("%d records of %d rows", len(records), len(rows))
	}
	return records
}
