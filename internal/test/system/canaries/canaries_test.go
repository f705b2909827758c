// Package canaries runs a service with texts that must not leave it, and looks for them in everything that comes out.
package canaries

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
)

// The canaries. Each is in one place, and none of them may come out.
const (
	payload  = "canary-payload"
	header   = "canary-header"
	key      = "canary-key" // hidden by ops.HideKeys
	password = "canary-password"
	argument = "canary-argument" // of the handler's SQL
	detail   = "canary-detail"   // PostgreSQL quotes it in the detail of an error
)

// Logs, spans, metrics, the command line, the dashboard, dead letters' causes and the errors that callers get have none
// of the canaries, while a consumer fails and parks, a relay publishes and parks, letters are replayed, and a database
// cannot be reached.
func TestCanaries(t *testing.T) {
	t.Parallel()
	s := newService(t)
	failing := true
	billing, err := consumer.New(consumer.Config[pgx.Tx]{
		Name: "billing", Store: s.store, Key: consumer.MessageID, MaxAttempts: 1, Logger: s.log,
		Backoff: func(int) time.Duration { return 0 },
		Trace:   s.tel.Consumer(telemetry.ConsumerConfig{Name: "billing", Topics: []string{"orders"}}),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			if failing {
				_, err := tx.Exec(ctx, `INSERT INTO effects (id, note) VALUES ($1, $2), ($1, $2)`, detail, argument)
				if err == nil {
					return errors.New("the constraint is missing")
				}
				return err // a *pgconn.PgError whose Detail quotes the id
			}
			refused := message("refused", m.ID)
			refused.ID = m.ID + "-refused" // an ID of the application's own may be a business key
			return s.writer.Enqueue(ctx, tx, message("charges", m.ID), refused)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	batch := []*consumer.Message{delivery(key + "-1"), delivery(key + "-2")}
	s.report("errors of ProcessBatch", errors.Join(billing.ProcessBatch(t.Context(), batch)...))
	other := delivery(key + "-1") // a mismatch
	other.Payload = []byte(payload + "-other")
	s.report("errors of ProcessBatch", errors.Join(billing.ProcessBatch(t.Context(), []*consumer.Message{other})...))

	s.replay(billing, "the handler fails still")
	failing = false
	s.replay(billing, "the handler is mended")
	s.relay()
	s.unreachable()
	s.look()
	for name, want := range map[string]int{
		"unique constraint": 5, "message parked": 2, "relay: message parked": 1, "requested replay failed": 2,
		"dead letter replayed": 2,
		"process orders":       3, "attempt": 3, "send ": 1, "txonce.outbox.parked": 1, "127.0.0.1:1": 5, "<h1>": 5,
	} {
		if n := strings.Count(s.out.String(), name); n < want {
			t.Errorf("%q occurs %d times, want at least %d: the test does not see what it should", name, n, want)
		}
	}
	for line := range strings.Lines(s.out.String()) {
		if strings.Contains(line, "canary") {
			t.Errorf("a canary: %.1000s", line)
		}
	}
	if shown := s.command(s.store, "dead-letters", "list", "--payload"); !strings.Contains(shown, payload) {
		t.Errorf("with --payload the command line shows no payload: %s", shown)
	}
}
