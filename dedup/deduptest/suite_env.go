package deduptest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// env is what one case works with: a database of its own, under one isolation level.
type env[TTx any] struct {
	Harness[TTx]
	DB[TTx]
	isolation string
}

func newEnv[TTx any](t *testing.T, h Harness[TTx], isolation string) *env[TTx] {
	t.Helper()
	return &env[TTx]{Harness: h, DB: h.New(t), isolation: isolation}
}

// fresh is the same level on another empty database.
func (e *env[TTx]) fresh(t *testing.T) *env[TTx] { return newEnv(t, e.Harness, e.isolation) }

func (e *env[TTx]) options() Options { return Options{Isolation: e.isolation} }

// patience is how long a node waits that should wait for everything this suite does.
const patience = limit / 2

// node opens another node that waits long enough for everything this suite does.
func (e *env[TTx]) node(t *testing.T) dedup.Store[TTx] {
	o := e.options()
	o.Wait = patience
	return e.Open(t, o)
}

// hook fails the case where the harness brings neither the hook nor a reason why not.
func hook(t *testing.T, name string, missing bool) {
	t.Helper()
	if missing {
		t.Fatalf("the harness has no %s hook: bring it, or say in DoesNotApply why this case cannot exist", name)
	}
}

const consumer = "suite"

// record asks for id: content, time and window are alike for all.
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

// limit is the longest that anything in the suite may take, on a machine that is busy with something else.
const limit = 2 * time.Minute

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// passing reports an error that another attempt may cure.
func passing[TTx any](s dedup.Store[TTx], err error) bool {
	return s.Retryable(err) || errors.Is(err, dedup.ErrInFlight)
}

// retry is what a consumer does: again in a new transaction, as long as the error is not final.
func retry[TTx any](ctx context.Context, s dedup.Store[TTx], attempt func() error) error {
	for {
		err := attempt()
		if err == nil || !passing(s, err) || ctx.Err() != nil {
			return err
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// errTwice: a handler may call other systems, so what is tried again is the consumer's to say.
var errTwice = errors.New("one InTx called fn more than once")

// handle is a whole message: claim, and one effect named after the ID if it is the first. Once.
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

// must handles r, with retries, and fails t where the verdict is another.
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

// settled fails t unless the key of r is claimed exactly if one effect of its name stands, which is the whole point.
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

// wantEffects compares without order.
func (e *env[TTx]) wantEffects(t *testing.T, want ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(e.Effects(t)))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("effects %q, want %q", got, want)
	}
}
