package applehook_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// The checkpoint never passes a notification that is not handled.
func TestBackfillCheckpoint(t *testing.T) {
	inBubble(t, "a handler that fails twice", func(w *world) {
		ids := w.missed(25)
		failed := map[string]int{}
		w.handle = func(_ context.Context, _ *deduptest.Tx, msg *consumer.Message) error {
			if failed[msg.ID]++; failed[msg.ID] <= 2 {
				return errors.New("not yet")
			}
			return nil
		}
		if passed := w.pass(w.backfill()); passed.New != len(ids) || passed.Parked != 0 {
			w.Errorf("%+v", passed)
		}
		w.once(ids)
	})
	for _, at := range []int{0, 7} { // how many times the handler has run when the outage begins
		inBubble(t, fmt.Sprintf("E20: a 10-minute outage of the database after %d notifications parks nothing", at), func(w *world) {
			ids := w.missed(25)
			began := time.Now()
			runs := 0
			outage := func() {
				w.store.Database().Stop()
				time.AfterFunc(10*time.Minute, w.store.Database().Start)
			}
			w.handle = func(context.Context, *deduptest.Tx, *consumer.Message) error {
				if runs++; runs == at {
					outage()
				}
				return nil
			}
			if at == 0 {
				outage()
			}
			passed := w.pass(w.backfill(since))
			if passed.New != len(ids) || passed.Parked != 0 {
				w.Errorf("%+v", passed)
			}
			if took := time.Since(began); took < 10*time.Minute || took > 20*time.Minute {
				w.Errorf("it took %v", took)
			}
			w.once(ids)
		})
	}
	inBubble(t, "poison is parked, and the rest is handled", func(w *world) {
		ids := w.missed(25)
		w.handle = func(_ context.Context, _ *deduptest.Tx, msg *consumer.Message) error {
			if msg.ID == ids[3] {
				return errors.New("poison")
			}
			return nil
		}
		if passed := w.pass(w.backfill()); passed.New != len(ids)-1 || passed.Parked != 1 {
			w.Errorf("%+v", passed)
		}
		w.once(append(ids[:3:3], ids[4:]...))
		letters, err := w.store.DeadLetters(w.Context(), consumer.DeadLetterFilter{})
		if err != nil || len(letters) != 1 {
			w.Fatal(letters, err)
		}
		if n, err := applehook.Decode(&letters[0].Message); err != nil || n.UUID != ids[3] {
			w.Errorf("the letter has %+v, %v", n, err)
		}
	})
	inBubble(t, "a Processor that cannot park: the pass fails, and the next one begins before", func(w *world) {
		ids := w.missed(30)
		broken := true
		w.handle = func(_ context.Context, _ *deduptest.Tx, msg *consumer.Message) error {
			if msg.ID == ids[10] && broken {
				return errors.New("poison")
			}
			return nil
		}
		noLot := w.store.Database().NewStore() // not a ParkingLot
		b, err := applehook.NewBackfill(w.config(noLot))
		if err != nil {
			w.Fatal(err)
		}
		_, err = b.Pass(w.Context())
		if err == nil || !strings.Contains(err.Error(), ids[10]) || !strings.Contains(err.Error(), "did not keep it") {
			w.Fatal(err)
		}
		if before := time.Now().Add(-20 * time.Hour); w.through().After(before) {
			w.Errorf("the checkpoint %v has passed the notification of %v", w.through(), before)
		}
		broken = false
		w.pass(b)
		w.once(ids)
	})
	inBubble(t, "a notification that does not verify", func(w *world) {
		ids := w.missed(5)
		forger, err := appletest.NewAuthority()
		if err != nil {
			w.Fatal(err)
		}
		forged, err := forger.SignedPayload(appletest.Notification{
			Type: "REFUND", UUID: "forged", BundleID: bundle,
			AppAppleID: appID, SignedDate: time.Now(),
		})
		if err != nil {
			w.Fatal(err)
		}
		w.api.Missed(time.Now().Add(-time.Minute), forged)
		_, err = w.backfill().Pass(w.Context())
		if webhook.RefusalOf(err) != webhook.BadSignature {
			w.Errorf("Pass returns %v", err)
		}
		if w.through().After(time.Now().Add(-time.Minute)) {
			w.Errorf("the checkpoint has passed it: %v", w.through())
		}
		var refused []string
		passed := w.pass(w.backfill(func(cfg *applehook.BackfillConfig[*deduptest.Tx]) {
			cfg.Refused = func(err error, signedPayload string) error {
				refused = append(refused, signedPayload)
				return nil
			}
		}))
		if passed.Skipped != 1 || len(refused) != 1 || refused[0] != forged {
			w.Errorf("%+v", passed)
		}
		w.once(ids)
		if w.store.Database().Count("forged") != 0 {
			w.Error("the forged notification was handled")
		}
	})
	inBubble(t, "a process that ends at any moment", func(w *world) {
		ids := w.missed(22)
		for stop := 1; ; stop++ { // after the handler ran this many times
			ctx, cancel := context.WithCancel(w.Context())
			runs := 0
			w.handle = func(context.Context, *deduptest.Tx, *consumer.Message) error {
				if runs++; runs == stop {
					cancel()
				}
				return nil
			}
			passed, err := w.backfill(func(cfg *applehook.BackfillConfig[*deduptest.Tx]) { cfg.Since = time.Now().Add(-4 * day) }).Pass(ctx)
			cancel()
			if err == nil {
				if !passed.Through.Equal(time.Now()) {
					w.Errorf("%+v", passed)
				}
				break
			}
			for i, id := range ids { // all before the checkpoint are handled
				at := time.Now().Add(time.Duration(i-len(ids)) * time.Hour)
				if at.Before(w.through()) && w.store.Database().Count(id) != 1 {
					w.Fatalf("stop %d: the checkpoint is %v, but %s of %v has no effect", stop, w.through(), id, at)
				}
			}
			if stop > len(ids)+1 {
				w.Fatal("it does not make progress")
			}
		}
		w.once(ids)
	})
	inBubble(t, "a checkpoint in the future, of a clock that was wrong", func(w *world) {
		c, err := webhook.NewCheckpoint(dedup.Store[*deduptest.Tx](w.store), "billing/apple/Production/"+bundle,
			181*day)
		if err != nil {
			w.Fatal(err)
		}
		if err := c.Save(w.Context(), fmt.Appendf(nil, `{"version":1,"through":%d}`,
			time.Now().Add(30*day).UnixMilli())); err != nil {
			w.Fatal(err)
		}
		ids := w.missed(2)
		w.pass(w.backfill())
		w.once(ids)
		if through := w.through(); through.After(time.Now()) || !strings.Contains(w.logs.String(),
			"the checkpoint is in the future") {
			w.Errorf("through %v, logs %s", through, w.logs)
		}
	})
	inBubble(t, "a checkpoint of another version", func(w *world) {
		c, err := webhook.NewCheckpoint(dedup.Store[*deduptest.Tx](w.store), "billing/apple/Production/"+bundle,
			181*day)
		if err != nil {
			w.Fatal(err)
		}
		if err := c.Save(w.Context(), []byte(`{"version":2}`)); err != nil {
			w.Fatal(err)
		}
		if _, err := w.backfill().Pass(w.Context()); err == nil || !strings.Contains(err.Error(), "another version") {
			w.Error(err)
		}
	})
}
