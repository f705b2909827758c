package sqlstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// setBack are statements that leave a database as a restore does that misses what numbers the messages.
var setBack = map[string]string{
	"sqlite":   `UPDATE outbox_seq SET last = 0`,
	"mysql":    `TRUNCATE TABLE outbox_messages`, // and with it, its AUTO_INCREMENT
	"postgres": `ALTER SEQUENCE outbox_seq RESTART`,
}

// After a restore, new messages would get numbers of parked ones. A relay does not start then, and its error has the
// statement that mends it.
func TestOutboxRelayRefusesNumbersThatAreInUse(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		n := db.open(deduptest.Options{})
		msgs := messages("a", 5, 5)
		enqueue(t, n, msgs...)
		broker := &outboxtest.FakePublisher{}
		run := func(p outbox.Publisher, within time.Duration) error {
			r, err := relay.New(relay.Config{Queue: n.Store, Publisher: p, MaxAttempts: 1, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return r.Run(ctx)
		}
		r, err := relay.New(relay.Config{
			Queue: n.Store, Publisher: failing{broker, msgs[4].ID}, MaxAttempts: 1,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.RunOnce(t.Context()); err != nil || db.count(t, `SELECT count(*) FROM outbox_parked`) != 1 {
			t.Fatalf("%v, parked %d", err, db.count(t, `SELECT count(*) FROM outbox_parked`))
		}
		if err := n.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		exec(t, db.DB, setBack[db.dialect])
		began := time.Now()
		err = run(broker, 30*time.Second)
		if !errors.Is(err, driver.ErrSettings) || time.Since(began) > 20*time.Second {
			t.Fatalf("Run = %v, after %v", err, time.Since(began))
		}
		if checked := n.Check(t.Context()); checked == nil ||
			checked.Error() != err.Error()[strings.Index(err.Error(), "sqlstore"):] {
			t.Errorf("Check = %v", checked)
		}
		_, mend, found := strings.Cut(err.Error(), "start again: ")
		if !found {
			t.Fatalf("%v", err)
		}
		exec(t, db.DB, mend)
		if err := n.Check(t.Context()); err != nil {
			t.Errorf("after %s: %v", mend, err)
		}
		if err := run(broker, 200*time.Millisecond); err != nil {
			t.Errorf("after %s: Run = %v", mend, err)
		}
	})
}
