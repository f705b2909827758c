package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/outbox"
)

// A broker confirms one message and drops it, stores another one twice, and refuses a third.
func TestOutbox(t *testing.T) {
	t.Parallel()
	eachOutbox(t, time.Hour, func(t *testing.T, o *outgoing) {
		o.spoil = func(m outbox.Message) (int, error) {
			switch m.ID {
			case "m-7":
				return 0, nil
			case "m-1200":
				return 2, nil
			case "m-9":
				return 0, outbox.Permanent(errors.New("too large"))
			}
			return 1, nil
		}
		o.enqueue(t, append(charged(0, 2500), outbox.Message{ID: "m-7-other", Topic: "other", Payload: []byte("x")})...)
		o.publish(t)
		delayed := charged(2500, 2501)
		delayed[0].NotBefore = time.Now().Add(time.Hour)
		o.enqueue(t, append(delayed, charged(2501, 2510)...)...) // not published yet
		cfg := o.config()
		cfg.Consumer = "" // not needed
		r, err := audit.Outbox(t.Context(), cfg, o.broker.outbox())
		if err != nil || r.Checked != 2499 || r.Skipped != 0 || !r.Whole || len(r.Notes) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		if lost, repeated := ids(r, audit.Lost), ids(r, audit.Repeated); r.Lost != 1 || r.Repeated != 1 ||
			!slices.Equal(lost, []string{"m-7"}) || !slices.Equal(repeated, []string{"m-1200"}) {
			t.Errorf("lost %q, repeated %q", lost, repeated)
		}
		for _, f := range r.Findings {
			if f.Kind == audit.Repeated && (f.Count != 2 || !strings.HasPrefix(f.Where, "charged/0/")) {
				t.Errorf("%+v", f)
			}
		}
		for expect, want := range map[audit.Expect]int{audit.AtLeastOne: 1, audit.AtMostOne: 1, audit.One: 2} {
			cfg.Expect = expect
			if r, err := audit.Outbox(t.Context(), cfg, o.broker.outbox()); err != nil || r.Faults() != want ||
				r.Checked != 2499 {
				t.Errorf("%s: %+v, %v", expect, r, err)
			}
		}
	})
}

// A sample is a part of what was sent, wherever it begins, and what the topic may have deleted is skipped.
func TestOutboxSample(t *testing.T) {
	t.Parallel()
	eachOutbox(t, time.Hour, func(t *testing.T, o *outgoing) {
		o.enqueue(t, charged(0, 2500)...)
		o.publish(t)
		cfg, of := o.config(), o.broker.outbox()
		cfg.Sample = 1000
		for range 20 {
			if r, err := audit.Outbox(t.Context(), cfg, of); err != nil || r.Checked != 1000 || r.Faults() != 0 ||
				r.Whole {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		all := o.messages
		o.messages = nil
		if r, err := audit.Outbox(t.Context(), cfg, of); err != nil || r.Lost != 1000 ||
			len(r.Findings) != audit.MaxFindings {
			t.Errorf("without topic: %d lost, %d findings, %v", r.Lost, len(r.Findings), err)
		}
		o.kept = time.Now()
		r, err := audit.Outbox(t.Context(), cfg, of)
		if err != nil || r.Checked != 0 || r.Skipped != 1000 || r.Whole || len(r.Notes) != 1 ||
			r.Bound() != "nothing was compared" {
			t.Errorf("deleted by the topic: %+v, %v", r, err)
		}
		o.messages, cfg.Sample = all[:2499], 0
		if r, err := audit.Outbox(t.Context(), cfg, of); err != nil || r.Checked != 2499 || r.Skipped != 1 ||
			r.Faults() != 0 || r.Whole {
			t.Errorf("one was deleted: %+v, %v", r, err)
		}
		of.Since = time.Now().Add(time.Minute)
		if r, err := audit.Outbox(t.Context(), cfg, of); err != nil || r.Checked != 0 {
			t.Errorf("since the future: %+v, %v", r, err)
		}
	})
}

// Without a list of what was sent, only repeats are found, and the report says so.
func TestOutboxWithoutList(t *testing.T) {
	t.Parallel()
	eachOutbox(t, 0, func(t *testing.T, o *outgoing) {
		o.spoil = func(m outbox.Message) (int, error) { return map[string]int{"m-4": 3}[m.ID] + 1, nil }
		o.enqueue(t, charged(0, 10)...)
		o.publish(t)
		r, err := audit.Outbox(t.Context(), o.config(), o.broker.outbox())
		if err != nil || r.Checked != 10 || r.Repeated != 1 || r.Lost != 0 || !slices.Equal(ids(r, audit.Repeated),
			[]string{"m-4"}) || r.Findings[0].Count != 4 {
			t.Errorf("%+v, %v", r, err)
		}
		if len(r.Notes) != 1 || !strings.Contains(r.Notes[0],
			"and not for lost ones; set Outbox.KeepSent in the pgxstore.Config") {
			t.Errorf("%q", r.Notes)
		}
	})
}

// Nothing is called lost when the topic was not read to its end.
func TestOutboxUnfinished(t *testing.T) {
	t.Parallel()
	eachOutbox(t, time.Hour, func(t *testing.T, o *outgoing) {
		o.enqueue(t, charged(0, 10)...)
		o.publish(t)
		cfg := o.config()
		cfg.MaxTime = time.Nanosecond
		r, err := audit.Outbox(t.Context(), cfg, o.broker.outbox())
		if err == nil || !strings.Contains(err.Error(), "was not read to its end") || r.Checked != 0 ||
			r.Faults() != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// What is published while the topic is read does not count as lost, because the list was made before.
func TestOutboxDuringReading(t *testing.T) {
	t.Parallel()
	eachOutbox(t, time.Hour, func(t *testing.T, o *outgoing) {
		o.enqueue(t, charged(0, 10)...)
		o.publish(t)
		o.read = func() {
			o.enqueue(t, charged(10, 20)...)
			o.publish(t)
		}
		if r, err := audit.Outbox(t.Context(), o.config(), o.broker.outbox()); err != nil || r.Checked != 10 ||
			r.Faults() != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Messages whose IDs are in another place are not called lost.
func TestOutboxOtherIDs(t *testing.T) {
	t.Parallel()
	eachOutbox(t, time.Hour, func(t *testing.T, o *outgoing) {
		o.enqueue(t, charged(0, 10)...)
		o.publish(t)
		of := o.broker.outbox()
		of.ID = func(m *consumer.Message) string { return m.Headers["ce_id"] }
		if r, err := audit.Outbox(t.Context(), o.config(), of); err == nil || !strings.Contains(err.Error(),
			"none of 10 messages of topic charged has an ID") || r.Faults() > 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// charge is a handler that enqueues two messages.
func (o *outgoing) charge(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	if string(m.Payload) == "nothing" {
		return nil
	}
	return o.store.Enqueue(ctx, tx,
		outbox.Message{Topic: "charged", Payload: []byte("1")}, outbox.Message{Topic: "mailed", Payload: []byte("x")},
		outbox.Message{Topic: "charged", Payload: []byte("2")})
}

func (o *outgoing) charging(t *testing.T) *consumer.Consumer[*sql.Tx] {
	t.Helper()
	c, err := consumer.New(consumer.Config[*sql.Tx]{
		Name: "charging", Store: o.store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
		Handle: o.charge,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// The IDs of messages are derived from claims. So no record of what was sent is needed, and a message that was never
// enqueued is missing too.
func TestOutboxPerClaim(t *testing.T) {
	t.Parallel()
	eachOutbox(t, 0, func(t *testing.T, o *outgoing) {
		c := o.charging(t)
		var first, second string
		o.spoil = func(m outbox.Message) (int, error) {
			switch {
			case m.Topic == "charged" && first == "":
				first = m.ID
				return 0, nil
			case m.Topic == "charged" && second == "":
				second = m.ID
				return 2, nil
			}
			return 1, nil
		}
		handle := func(id, payload string) {
			m := message(id)
			m.Payload = []byte(payload)
			if err := c.Process(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 30 {
			handle(fmt.Sprintf("order-%d", i), "x")
		}
		handle("silent", "nothing")
		o.publish(t)
		handle("pending", "x")
		cfg, of := o.config(), o.broker.outbox()
		cfg.Consumer, of.PerClaim = "charging", 2
		r, err := audit.Outbox(t.Context(), cfg, of)
		if err != nil || r.Checked != 62 || r.Lost != 3 || r.Repeated != 1 || !r.Whole || r.Skipped != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		silent := 0
		for _, f := range r.Findings {
			if f.Key.ID == "silent" {
				silent++
			}
		}
		if !slices.Contains(ids(r, audit.Lost), first) || silent != 2 || !slices.Equal(ids(r, audit.Repeated),
			[]string{second}) {
			t.Errorf("%s was dropped, %s was doubled: %+v", first, second, r.Findings)
		}
		of.Since = time.Now().Add(-time.Hour)
		r, err = audit.Outbox(t.Context(), cfg, of)
		if err != nil || r.Checked != 0 || r.Whole || r.Skipped != 32 || len(r.Notes) != 1 ||
			!strings.Contains(r.Notes[0], "32 claims were skipped") ||
			!strings.Contains(r.Notes[0], "set OutboxConfig.Since 1h0m0s earlier") {
			t.Errorf("since an hour ago: %+v, %v", r, err)
		}
		of.Since = time.Now().Add(-2 * time.Hour)
		if r, err := audit.Outbox(t.Context(), cfg, of); err != nil || r.Checked != 62 || len(r.Notes) != 0 {
			t.Errorf("since two hours ago: %+v, %v", r, err)
		}
		of.Since = time.Now().Add(time.Hour)
		if r, err := audit.Outbox(t.Context(), cfg, of); err != nil || r.Checked+r.Skipped != 0 {
			t.Errorf("since the future: %+v, %v", r, err)
		}
	})
}

// While handlers enqueue and a relay publishes, nothing is missing.
func TestOutboxUnderLoad(t *testing.T) {
	t.Parallel()
	eachOutbox(t, time.Hour, func(t *testing.T, o *outgoing) {
		c := o.charging(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		stop := o.relay(t)
		defer stop()
		var workers sync.WaitGroup
		defer workers.Wait()
		for n := range 2 {
			workers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					if err := c.Process(ctx, message(fmt.Sprintf("w%d-%d", n, i))); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		defer cancel()
		checked := map[int]int{}
		for ctx.Err() == nil && (checked[0] < 500 || checked[2] < 500) {
			for _, perClaim := range []int{0, 2} {
				cfg, of := o.config(), o.broker.outbox()
				cfg.Consumer, of.PerClaim = "charging", perClaim
				r, err := audit.Outbox(t.Context(), cfg, of)
				if err != nil || r.Faults() != 0 {
					t.Errorf("per claim %d: %+v, %v", perClaim, r, err)
				}
				if len(r.Notes) == 0 {
					checked[perClaim] += r.Checked
				}
			}
		}
		if checked[0] < 500 || checked[2] < 500 {
			t.Errorf("compared: %v", checked)
		}
	})
}
