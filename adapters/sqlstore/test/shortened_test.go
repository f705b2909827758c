package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

// refuseLetters returns statements that make a database refuse a dead letter with a payload of that many bytes.
func refuseLetters(bytes int) map[string]string {
	check := fmt.Sprintf(`ALTER TABLE dead_letters ADD CONSTRAINT refuse CHECK (length(payload) < %d)`, bytes)
	return map[string]string{
		"sqlite": fmt.Sprintf(`CREATE TRIGGER refuse BEFORE INSERT ON dead_letters WHEN length(NEW.payload) >= %d
			BEGIN SELECT RAISE(ABORT, 'the letter is too long'); END`, bytes),
		"mysql": check, "postgres": check,
	}
}

// parksPoison makes a consumer whose handler fails on payloads that begin with poison.
func parksPoison(t *testing.T, s *node) *consumer.Consumer[*sql.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "billing", Store: s.Store, Logger: slog.New(slog.DiscardHandler),
		Backoff: func(int) time.Duration { return time.Minute },
		Key:     func(m *consumer.Message) (string, error) { return m.ID, nil },
		Handle: func(_ context.Context, _ *sql.Tx, m *consumer.Message) error {
			if strings.HasPrefix(string(m.Payload), "poison") {
				return consumer.Permanent(errors.New("poison"))
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wantShortened delivers m, which the database refuses to park as it is, and a good message.
func wantShortened(t *testing.T, s *node, m *consumer.Message) {
	t.Helper()
	c := parksPoison(t, s)
	for i, err := range c.ProcessBatch(t.Context(),
		[]*consumer.Message{m, {ID: "good", Topic: "orders", Payload: []byte("good")}}) {
		if err != nil {
			t.Fatalf("message %d: %.300v", i, err)
		}
	}
	found := letters(t, s, consumer.DeadLetterFilter{})
	if len(found) != 1 {
		t.Fatalf("%d letters", len(found))
	}
	short, ok := found[0].Shortened()
	if got := found[0].Message; !ok || short.PayloadBytes != len(m.Payload) || len(got.Payload) != 64<<10 ||
		got.Position != m.Position || got.Headers["trace"] != "abc" {
		t.Errorf("%v, %+v, headers %v, %d bytes", ok, short, got.Headers, len(got.Payload))
	}
	if _, err := c.Replay(t.Context(), found[0], consumer.Replay{}); !errors.Is(err, consumer.ErrShortened) {
		t.Errorf("Replay = %v", err)
	}
	mend := consumer.Replay{Repair: func(m *consumer.Message) error { m.Payload = []byte("mended"); return nil }}
	if ran, err := c.Replay(t.Context(), found[0], mend); !ran || err != nil {
		t.Errorf("Replay with a payload = %v, %v", ran, err)
	}
}

func poisonOf(bytes int) *consumer.Message {
	return &consumer.Message{
		ID: "1", Topic: "orders", Position: "orders/3/1042", Headers: map[string]string{"trace": "abc"},
		Payload: []byte("poison" + strings.Repeat("x", bytes)),
	}
}

// A letter that the database refuses is stored with the beginning of its payload. Others are not paused.
func TestALetterThatTheDatabaseRefusesIsShortened(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		exec(t, db.DB, refuseLetters(100_000)[db.dialect])
		wantShortened(t, s, poisonOf(200_000))
	})
}

// No letter at all can be stored: its message alone is deferred.
func TestALetterThatCannotBeStoredStopsNoOther(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		s := db.open(deduptest.Options{})
		exec(t, db.DB, refuseLetters(1)[db.dialect])
		c := parksPoison(t, s)
		for n := range 5 {
			began := time.Now()
			errs := c.ProcessBatch(t.Context(), []*consumer.Message{poisonOf(200_000), {ID: fmt.Sprint("good ", n), Topic: "orders", Payload: []byte("good")}})
			retry, ok := errors.AsType[*consumer.RetryError](errs[0])
			if !ok || !retry.Held || errs[1] != nil {
				t.Fatalf("%.300v", errs)
			}
			if waited := time.Since(began); waited > 30*time.Second { // a pause lasts a minute
				t.Errorf("the others waited %v", waited)
			}
		}
	})
}

// A failing message is longer than the server's max_allowed_packet.
func TestMySQLParksWhatIsLongerThanAPacket(t *testing.T) {
	t.Run("mariadb", func(t *testing.T) {
		d := openMySQL(t)
		var packet int
		if err := d.db.QueryRow(`SELECT @@max_allowed_packet`).Scan(&packet); err != nil || packet > 16<<20 {
			t.Fatalf("max_allowed_packet is %d, %v: the test wants the default", packet, err)
		}
		wantShortened(t, d.open(t, d.dsn, deduptest.Options{}), poisonOf(packet))
	})
}
