package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/nasty"
)

// A handler panics with an error whose methods panic, in a batch with others. Its message is parked, and the others are
// committed. The Store asks errors for the driver's codes, which must not end the process.
func TestPanicsWithErrorsThatHarm(t *testing.T) {
	d := newSQLiteDB(t)
	store := d.Open(t, deduptest.Options{})
	for i, e := range nasty.Errors() {
		for way, fail := range map[string]func() error{
			"panic":    func() error { panic(e.Err) },
			"returned": func() error { return &consumer.PanicError{Value: e.Err} },
			"wrapped":  func() error { panic(fmt.Errorf("wrapped: %w", &consumer.PanicError{Value: e.Err})) },
		} {
			t.Run(fmt.Sprint(i, way), func(t *testing.T) {
				c, err := consumer.New(consumer.Config[*sql.Tx]{
					Name: fmt.Sprint("nasty", i, way), Store: store, Key: consumer.MessageID, MaxAttempts: 1,
					Logger: slog.New(slog.DiscardHandler),
					Handle: func(_ context.Context, _ *sql.Tx, m *consumer.Message) error {
						if m.ID == "bad" {
							return fail()
						}
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				var msgs []*consumer.Message
				for _, id := range []string{"good1", "bad", "good2"} {
					msgs = append(msgs, &consumer.Message{ID: id, Topic: "orders", Time: time.Now()})
				}
				for n, err := range c.ProcessBatch(t.Context(), msgs) {
					if err != nil {
						t.Errorf("%s: %v", msgs[n].ID, err)
					}
				}
				letters, err := c.DeadLetters(t.Context(),
					consumer.DeadLetterFilter{Consumer: fmt.Sprint("nasty", i, way)})
				if err != nil || len(letters) != 1 || letters[0].Record.Key.ID != "bad" {
					t.Errorf("letters %v, %v; want that of bad", letters, err)
				}
			})
		}
	}
}
