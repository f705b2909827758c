package applehook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/await"
)

const day = 24 * time.Hour

// inProcess is a transport that calls a handler without a network, so that a bubble's time goes on.
type inProcess struct{ http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	recorder := httptest.NewRecorder()
	p.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

// newKey returns a key of App Store Connect, as its file and its public half.
func newKey(t testing.TB) (p8 []byte, public *ecdsa.PublicKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), &key.PublicKey
}

// world is an app with Apple's history, a database and a consumer.
type world struct {
	*testing.T
	authority *appletest.Authority
	api       *appletest.API
	verifier  *applehook.Verifier
	store     *consumertest.Store
	key       []byte
	logs      *bytes.Buffer
	handle    consumer.Handler[*deduptest.Tx] // nil: it has the effect
	numbers   int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	authority, err := appletest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := applehook.New(applehook.Config{BundleID: bundle, AppAppleID: appID, Environment: applehook.Production, Roots: authority.Roots()})
	if err != nil {
		t.Fatal(err)
	}
	key, public := newKey(t)
	return &world{
		T: t, authority: authority, verifier: verifier, store: consumertest.NewStore(), key: key, logs: new(bytes.Buffer),
		api: &appletest.API{Key: public, IssuerID: "issuer", KeyID: "KEY", BundleID: bundle},
	}
}

func (w *world) config(store dedup.Store[*deduptest.Tx]) applehook.BackfillConfig[*deduptest.Tx] {
	w.Helper()
	logger := slog.New(slog.NewTextHandler(w.logs, nil))
	billing, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "billing", Store: store, Key: consumer.MessageID, Window: 200 * day, Logger: logger,
		Handle: func(ctx context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
			if w.handle != nil {
				if err := w.handle(ctx, tx, msg); err != nil {
					return err
				}
			}
			return tx.Add(msg.ID)
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return applehook.BackfillConfig[*deduptest.Tx]{
		Name: "billing", Verifier: w.verifier, Processor: billing, Store: store, IssuerID: "issuer", KeyID: "KEY", PrivateKey: w.key,
		HTTPClient: &http.Client{Transport: inProcess{w.api}}, Logger: logger,
	}
}

// backfill is a new process.
func (w *world) backfill(changes ...func(*applehook.BackfillConfig[*deduptest.Tx])) *applehook.Backfill[*deduptest.Tx] {
	w.Helper()
	cfg := w.config(consumertest.NewStoreOn(w.store.Database()))
	for _, change := range changes {
		change(&cfg)
	}
	b, err := applehook.NewBackfill(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// signed returns the next notification, and its UUID.
func (w *world) signed(at time.Time, kind string) (signedPayload, id string) {
	w.Helper()
	w.numbers++
	id = fmt.Sprintf("00000000-0000-4000-8000-%012d", w.numbers)
	signedPayload, err := w.authority.SignedPayload(appletest.Notification{
		Type: kind, UUID: id, SignedDate: at, BundleID: bundle, AppAppleID: appID, Transaction: map[string]any{"originalTransactionId": strconv.Itoa(w.numbers % 7)},
	})
	if err != nil {
		w.Fatal(err)
	}
	return signedPayload, id
}

// missed adds n notifications, one each hour until a moment ago, and returns their UUIDs.
func (w *world) missed(n int) (ids []string) {
	w.Helper()
	for i := range n {
		at := time.Now().Add(time.Duration(i-n) * time.Hour)
		signedPayload, id := w.signed(at, "DID_RENEW")
		w.api.Missed(at, signedPayload)
		ids = append(ids, id)
	}
	return ids
}

// once fails the test unless each of ids has exactly one effect.
func (w *world) once(ids []string) {
	w.Helper()
	for _, id := range ids {
		if n := w.store.Database().Count(id); n != 1 {
			w.Errorf("%s has %d effects", id, n)
		}
	}
}

// through returns the saved checkpoint, or the zero time.
func (w *world) through() time.Time {
	w.Helper()
	c, err := webhook.NewCheckpoint(dedup.Store[*deduptest.Tx](w.store), "billing/apple/Production/"+bundle, 181*day)
	if err != nil {
		w.Fatal(err)
	}
	saved, err := c.Load(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	if saved == nil {
		return time.Time{}
	}
	var ms int64
	if _, err := fmt.Sscanf(string(saved), `{"version":1,"through":%d}`, &ms); err != nil {
		w.Fatalf("checkpoint %s: %v", saved, err)
	}
	return time.UnixMilli(ms)
}

func (w *world) pass(b *applehook.Backfill[*deduptest.Tx]) applehook.Passed {
	w.Helper()
	passed, err := b.Pass(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return passed
}

// wait lets the bubble's time pass.
func (w *world) wait(d time.Duration) {
	w.Helper()
	if err := await.Sleep(w.Context(), d); err != nil {
		w.Fatal(err)
	}
}

func inBubble(t *testing.T, name string, f func(w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(newWorld(t)) })
	})
}

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
			events, err := w.verifier.Verify(w.Context(), &webhook.Delivery{Body: body(w, signedPayload), Time: time.Now()})
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
		forged, err := forger.SignedPayload(appletest.Notification{Type: "REFUND", UUID: "forged", BundleID: bundle, AppAppleID: appID, SignedDate: time.Now()})
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
	inBubble(t, "a checkpoint of another version", func(w *world) {
		c, err := webhook.NewCheckpoint(dedup.Store[*deduptest.Tx](w.store), "billing/apple/Production/"+bundle, 181*day)
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
