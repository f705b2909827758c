package deduptest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/await"
)

// env is the database of one case, used with one isolation level. The promoted fields and hooks of the harness are what
// cases call.
type env[TTx any] struct {
	Harness[TTx]
	DB[TTx]
	isolation string
}

func newEnv[TTx any](t *testing.T, h Harness[TTx], isolation string) *env[TTx] {
	t.Helper()
	return &env[TTx]{Harness: h, DB: h.New(t), isolation: isolation}
}

// fresh returns an env with the same isolation level on another empty database.
func (e *env[TTx]) fresh(t *testing.T) *env[TTx] { return newEnv(t, e.Harness, e.isolation) }

func (e *env[TTx]) options() Options { return Options{Isolation: e.isolation} }

// patience is longer than any lock of the suite is held.
const patience = limit / 2

// node opens another node, whose claims wait for patience.
func (e *env[TTx]) node(t *testing.T) dedup.Store[TTx] {
	o := e.options()
	o.Wait = patience
	return e.Open(t, o)
}

// hook fails the case if the harness has neither the hook nor an entry in DoesNotApply.
func hook(t *testing.T, name string, missing bool) {
	t.Helper()
	if missing {
		t.Fatalf("the harness has no %s hook: add it, or say in DoesNotApply why this case cannot exist", name)
	}
}

const consumer = "suite"

// record returns a record for id. All have the same content and window.
func record(id string) dedup.Record {
	return dedup.Record{
		Key:         dedup.Key{Consumer: consumer, ID: id},
		Fingerprint: dedup.FingerprintOf([]byte("content")),
		Time:        time.Now(),
	}
}

func recordAt(id string, at time.Time, window time.Duration) dedup.Record {
	r := record(id)
	r.Time, r.Window = at, window
	return r
}

// limit is how long one call may take, also on a busy machine.
const limit = 2 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// passing reports whether another attempt may succeed after err.
func passing[TTx any](s dedup.Store[TTx], err error) bool {
	return s.Retryable(err) || errors.Is(err, dedup.ErrInFlight)
}

// retry repeats attempt while its error may pass, as a consumer does.
func retry[TTx any](ctx context.Context, s dedup.Store[TTx], attempt func() error) error {
	for {
		err := attempt()
		if err == nil || !passing(s, err) || ctx.Err() != nil {
			return err
		}
		_ = await.Sleep(ctx, 5*time.Millisecond)
	}
}

// errTwice: a Store must not repeat a transaction by itself. Only the consumer may, because a handler may call other
// systems.
var errTwice = errors.New("one InTx called fn more than once")

// handle processes a message once: it claims r, and if the claim is First, it writes an effect named after the ID.
func (e *env[TTx]) handle(ctx context.Context, s dedup.Store[TTx], r dedup.Record) (c dedup.Claim, err error) {
	ran := false
	err = s.InTx(ctx, []dedup.Record{r}, func(tx TTx, claims []dedup.Claim) error {
		if ran {
			return errTwice
		}
		c, ran = claims[0], true
		if c.Verdict != dedup.First {
			return nil
		}
		return e.Effect(ctx, tx, r.Key.ID)
	})
	return c, err
}

// must handles r, with retries, and fails t if the verdict is not want.
func (e *env[TTx]) must(t *testing.T, s dedup.Store[TTx], r dedup.Record, want dedup.Verdict) dedup.Claim {
	t.Helper()
	ctx := bounded(t)
	var c dedup.Claim
	err := retry(ctx, s, func() (err error) {
		c, err = e.handle(ctx, s, r)
		return err
	})
	if err != nil {
		t.Fatalf("%v: %v", r.Key, err)
	}
	if c.Verdict != want {
		t.Fatalf("%v: verdict %v, want %v", r.Key, c.Verdict, want)
	}
	return c
}

var errUndo = errors.New("deduptest: roll back")

// verdict claims r and rolls back.
func verdict[TTx any](t *testing.T, s dedup.Store[TTx], r dedup.Record) (c dedup.Claim) {
	t.Helper()
	ctx := bounded(t)
	err := retry(ctx, s, func() error {
		return s.InTx(ctx, []dedup.Record{r}, func(_ TTx, claims []dedup.Claim) error {
			c = claims[0]
			return errUndo
		})
	})
	if !errors.Is(err, errUndo) {
		t.Fatalf("claiming %v to look: %v", r.Key, err)
	}
	return c
}

// settled fails t unless r has one effect and a claim, or neither. It reports whether r has them.
func (e *env[TTx]) settled(t *testing.T, s dedup.Store[TTx], r dedup.Record) (done bool) {
	t.Helper()
	v := verdict(t, s, r).Verdict
	n := e.count(t, r.Key.ID)
	if n > 1 {
		t.Fatalf("%v: %d effects", r.Key, n)
	}
	if claimed := v == dedup.Duplicate; claimed != (n == 1) {
		t.Fatalf("%v: %d effects, but a new claim says %v", r.Key, n, v)
	}
	return n == 1
}

func (e *env[TTx]) count(t *testing.T, name string) (n int) {
	t.Helper()
	for _, f := range e.Effects(t) {
		if f == name {
			n++
		}
	}
	return n
}

// wantEffects compares the committed effects with want, in any order.
func (e *env[TTx]) wantEffects(t *testing.T, want ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(e.Effects(t)))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("effects %q, want %q", got, want)
	}
}
