package applehook_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestBackfill(t *testing.T) {
	inBubble(t, "R12: each missed notification is handled once, and the second pass does nothing", func(w *world) {
		ids := w.missed(103)
		b := w.backfill()
		if passed := w.pass(b); passed.New != len(ids) || passed.Read < len(ids) || !passed.Through.Equal(time.Now()) {
			w.Errorf("%+v", passed)
		}
		w.once(ids)
		if !w.through().Equal(time.Now()) {
			w.Errorf("checkpoint %v", w.through())
		}
		if again := w.pass(b); again.New != 0 || again.Parked != 0 {
			w.Errorf("%+v", again)
		}
		w.once(ids)
	})
	inBubble(t, "R12: what the receiver has handled is a duplicate, and the other way round", func(w *world) {
		before, id := w.signed(time.Now(), "DID_RENEW")
		w.api.Acknowledged(time.Now(), before)
		after, id2 := w.signed(time.Now(), "REFUND")
		w.api.Missed(time.Now(), after)
		cfg := w.config(w.store)
		live := func(signedPayload string) {
			events, err := w.verifier.Verify(w.Context(),
				&webhook.Delivery{Body: body(w, signedPayload), Time: time.Now()})
			if err != nil {
				w.Fatal(err)
			}
			events[0].Message.Attempt = 1
			if err := cfg.Processor.ProcessBatch(w.Context(), []*consumer.Message{&events[0].Message})[0]; err != nil {
				w.Fatal(err)
			}
		}
		live(before)
		w.wait(time.Minute)
		if passed := w.pass(w.backfill()); passed.New != 1 || passed.Read != 2 {
			w.Errorf("%+v", passed)
		}
		live(after)
		w.once([]string{id, id2})
	})
	inBubble(t, "R11, R13: TEST is dropped, unknown types are handled", func(w *world) {
		test, testID := w.signed(time.Now(), "TEST")
		odd, oddID := w.signed(time.Now(), "SOMETHING_NEW")
		w.api.Missed(time.Now(), test)
		w.api.Missed(time.Now(), odd)
		w.wait(time.Minute)
		if passed := w.pass(w.backfill()); passed.New != 1 || passed.Dropped != 1 {
			w.Errorf("%+v", passed)
		}
		w.once([]string{oddID})
		if w.store.Database().Count(testID) != 0 {
			w.Error("TEST reached the handler")
		}
	})
	inBubble(t, "OnlyFailures and Since", func(w *world) {
		old, _ := w.signed(time.Now().Add(-10*day), "DID_RENEW")
		w.api.Missed(time.Now().Add(-10*day), old)
		seen, _ := w.signed(time.Now(), "DID_RENEW")
		w.api.Acknowledged(time.Now(), seen)
		missed, id := w.signed(time.Now(), "DID_RENEW")
		w.api.Missed(time.Now(), missed)
		w.wait(time.Minute)
		passed := w.pass(w.backfill(func(cfg *applehook.BackfillConfig[*deduptest.Tx]) {
			cfg.OnlyFailures, cfg.Since = true, time.Now().Add(-day)
		}))
		if passed.New != 1 || passed.Read != 1 {
			w.Errorf("%+v", passed)
		}
		w.once([]string{id})
	})
	inBubble(t, "notifications before Since do not run, in later passes neither", func(w *world) {
		start := time.Now().Add(-time.Hour)
		old, oldID := w.signed(start.Add(-500*time.Millisecond), "DID_RENEW")
		w.api.Missed(start.Add(-500*time.Millisecond), old)
		ids := w.missed(1)
		for range 2 {
			w.pass(w.backfill(func(cfg *applehook.BackfillConfig[*deduptest.Tx]) { cfg.Since = start }))
		}
		w.once(ids)
		if w.store.Database().Count(oldID) != 0 {
			w.Error("a notification from before Since has run")
		}
	})
	inBubble(t, "a notification that appears late is found by the overlap", func(w *world) {
		b := w.backfill()
		w.pass(b)
		late, id := w.signed(time.Now().Add(-2*time.Hour), "DID_RENEW")
		w.api.Missed(time.Now().Add(-2*time.Hour), late)
		if passed := w.pass(b); passed.New != 1 {
			w.Errorf("%+v", passed)
		}
		w.once([]string{id})
	})
	inBubble(t, "after 200 days without a pass, the gap is logged", func(w *world) {
		b := w.backfill()
		w.pass(b)
		w.wait(200 * day)
		ids := w.missed(3)
		w.pass(b)
		w.once(ids)
		if !strings.Contains(w.logs.String(), "some may be lost") {
			w.Errorf("log: %s", w.logs)
		}
	})
	inBubble(t, "old notifications are not too old, although the receiver would refuse them", func(w *world) {
		at := time.Now().Add(-170 * day)
		old, id := w.signed(at, "DID_RENEW")
		w.api.Missed(at, old)
		w.pass(w.backfill())
		w.once([]string{id})
	})
	inBubble(t, "Run makes a pass each Interval, and ends with its ctx", func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		ended := make(chan error)
		go func() { ended <- w.backfill().Run(ctx) }()
		var ids []string
		for range 3 {
			synctest.Wait()
			ids = append(ids, w.missed(1)...)
			w.wait(time.Hour + time.Second)
			synctest.Wait()
			w.once(ids)
		}
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
}
