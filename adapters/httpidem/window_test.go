package httpidem_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/httpidem"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// purge forgets what has expired.
func (a *api) purge() {
	a.t.Helper()
	if _, err := a.store.Purge(a.t.Context(), dedup.Sweep{Owner: "test"}); err != nil {
		a.t.Fatal(err)
	}
}

func TestWindow(t *testing.T) {
	t.Run("case 40: a key is remembered for its window", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.Window = 48 * time.Hour })
		a.want(a.create(), request{}, http.StatusCreated, false)
		a.store.Database().Age(47 * time.Hour)
		a.purge()
		a.want(a.create(), request{}, http.StatusCreated, true)
		a.store.Database().Age(2 * time.Hour)
		a.purge()
		a.want(a.create(), request{}, http.StatusCreated, false) // documented: a retry after the window runs again
	})
	t.Run("case 39: the clocks of the processes do not matter", func(t *testing.T) {
		db := deduptest.NewDatabase()
		for i, skew := range []time.Duration{0, 72 * time.Hour, -72 * time.Hour} {
			store := db.NewStore()
			store.Clock = func() time.Time { return time.Now().Add(skew) }
			a := newAPIOn(t, store)
			a.purge()
			a.want(a.create(), request{}, http.StatusCreated, i > 0)
			a.wantEffects(1)
		}
	})
	t.Run("E16: a UUIDv7 that was forgotten does not run again", func(t *testing.T) {
		a := newAPI(t, func(c *config) { c.KeyTime = httpidem.UUIDv7Time })
		q := request{key: uuidv7(time.Now().Add(-25 * time.Hour))}
		a.want(a.create(), request{key: "other"}, http.StatusCreated, false)
		a.store.Database().Age(25 * time.Hour)
		a.purge()
		a.refused(a.create(), q, http.StatusConflict, httpidem.Forgotten)
		a.want(a.create(), request{key: uuidv7(time.Now())}, http.StatusCreated, false)
		for _, at := range []time.Time{time.Now().Add(2 * time.Hour), time.UnixMilli(1<<48 - 1)} {
			w := a.refused(a.create(), request{key: uuidv7(at)}, http.StatusBadRequest, httpidem.MalformedKey)
			if text := w.Body.String(); !strings.Contains(text, `"detail":"the key's time is in the future"`) ||
				strings.Contains(text, "cannot be read") {
				t.Errorf("the client sees %s", text)
			}
		}
		a.want(a.create(), request{key: "no-uuid"}, http.StatusCreated, false)
	})
}

func uuidv7(at time.Time) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return ms[:8] + "-" + ms[8:] + "-7abc-8def-0123456789ab"
}

func TestUUIDv7Time(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	good := uuidv7(at)
	if got := httpidem.UUIDv7Time(good); !got.Equal(at) {
		t.Errorf("%s: %v", good, got)
	}
	if got := httpidem.UUIDv7Time(strings.ToUpper(good)); !got.Equal(at) {
		t.Errorf("in capitals: %v", got)
	}
	for _, key := range []string{
		"", "k", good[1:], good + "0", strings.Replace(good, "-7", "-4", 1), strings.Replace(good, "-8", "-c", 1),
		strings.ReplaceAll(good, "-", ""), strings.Replace(good, "a", "g", 1), strings.Repeat("-", 36),
		"{" + good[2:] + "}",
	} {
		if got := httpidem.UUIDv7Time(key); !got.IsZero() {
			t.Errorf("%q: %v, want the zero time", key, got)
		}
	}
}

func FuzzUUIDv7Time(f *testing.F) {
	f.Add(uuidv7(time.UnixMilli(1)))
	f.Add("-------7-")
	f.Fuzz(func(t *testing.T, key string) {
		if at := httpidem.UUIDv7Time(key); !at.IsZero() && !strings.EqualFold(key[:13], uuidv7(at)[:13]) {
			t.Errorf("%q: %v", key, at)
		}
	})
}

func TestSecrets(t *testing.T) {
	old, new := secret("old"), secret("new")
	with := func(db *deduptest.Database, secrets ...[]byte) *api {
		return newAPIOn(t, db.NewStore(), func(c *config) { c.Secrets = secrets })
	}
	// Each row is a sequence of processes that get the same request. All but the first replay.
	for _, tt := range []struct {
		name      string
		processes [][][]byte
	}{
		{"E6: the old secret, then both", [][][]byte{{old}, {new, old}}},
		{"E6: both, then the old secret, as during a rolling deployment", [][][]byte{{new, old}, {old}}},
		{"E6: the other order", [][][]byte{{old, new}, {new, old}, {old}, {new}}},
		{"E6: after the window", [][][]byte{{new, old}, {new}}},
		{"E6: three secrets", [][][]byte{{secret("3"), new, old}, {old}, {new}, {secret("3")}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			db := deduptest.NewDatabase()
			first := with(db, tt.processes[0]...)
			w := first.want(first.create(), request{body: "x"}, http.StatusCreated, false)
			for range 2 {
				for _, secrets := range tt.processes[1:] {
					a := with(db, secrets...)
					a.same(w, a.want(a.create(), request{body: "x"}, http.StatusCreated, true))
					a.refused(a.create(), request{body: "y"}, http.StatusUnprocessableEntity, httpidem.Mismatch)
					a.wantEffects(1)
				}
			}
		})
	}
	t.Run("E6: a replay claims nothing", func(t *testing.T) {
		db := deduptest.NewDatabase()
		a := with(db, old)
		a.want(a.create(), request{}, http.StatusCreated, false)
		b := with(db, new, old)
		b.want(b.create(), request{}, http.StatusCreated, true)
		// too early: the window has not passed. The row of the new secret must not exist without a response.
		c := with(db, new)
		c.want(c.create(), request{}, http.StatusCreated, false)
	})
	t.Run("E6: the caller's slice does not matter after New", func(t *testing.T) {
		mine := secret("mine")
		a := newAPI(t, func(c *config) { c.Secrets = [][]byte{mine} })
		a.want(a.create(), request{}, http.StatusCreated, false)
		clear(mine)
		a.want(a.create(), request{}, http.StatusCreated, true)
	})
}

// A request whose key was forgotten runs, whatever its content. Messages of other content are other messages.
func TestOutboxIDs(t *testing.T) {
	a := newAPI(t)
	h := a.guard.Handle(func(ctx context.Context, _ *deduptest.Tx, w http.ResponseWriter, _ *http.Request) error {
		messages := []outbox.Message{{Topic: "orders"}}
		if err := driver.AssignIDs(ctx, messages); err != nil {
			return err
		}
		w.WriteHeader(http.StatusBadRequest) // not stored, so that the key is free again
		_, err := io.WriteString(w, messages[0].ID)
		return err
	})
	id := func(body string) string { return a.send(h, request{body: body}).Body.String() }
	first := id("first")
	if again, other := id("first"), id("other"); first == "" || again != first || other == first {
		t.Errorf("IDs %q, then %q, and %q for other content", first, again, other)
	}
}
