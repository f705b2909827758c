package deduptest

import (
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/dedup"
)

// keyCases test whether keys are equal.
func keyCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "two consumers and two tenants never meet", run: scopes[TTx]},
		{name: "keys that concatenate alike never meet", run: concatenation[TTx]},
		{name: "hard keys are distinct", run: hardKeys[TTx]},
		{name: "bad keys are refused, nothing is claimed", run: badKeys[TTx]},
		{name: "compact rows keep the same promises", run: compact[TTx]},
		{name: "a derived key of another business key is a collision", run: collision[TTx]},
	}
}

func scopes[TTx any](t *testing.T, e *env[TTx]) {
	e.distinct(t,
		dedup.Key{Consumer: "billing", ID: "order-1"}, dedup.Key{Consumer: "mail", ID: "order-1"},
		dedup.Key{Consumer: "billing", Tenant: "a", ID: "order-1"},
		dedup.Key{Consumer: "billing", Tenant: "b", ID: "order-1"},
		dedup.Key{Consumer: "billing", ID: timed[0]}, dedup.Key{Consumer: "mail", ID: timed[0]},
		dedup.Key{Consumer: "billing", Tenant: "a", ID: timed[0]},
		dedup.Key{Consumer: "billing", Tenant: "b", ID: timed[0]},
	)
}

func concatenation[TTx any](t *testing.T, e *env[TTx]) {
	e.distinct(t,
		dedup.Key{Consumer: "ab", ID: "c"}, dedup.Key{Consumer: "a", ID: "bc"},
		dedup.Key{Consumer: "a", Tenant: "b", ID: "c"}, dedup.Key{Consumer: "a", Tenant: "bc", ID: "c"},
		dedup.Key{Consumer: "a", Tenant: "b", ID: "cc"}, dedup.Key{Consumer: "a/b", ID: "c"},
		dedup.Key{Consumer: "a", ID: "b/c"}, dedup.Key{Consumer: "a", ID: "order"},
		dedup.Key{Consumer: "a", ID: "order-1"},
	)
}

// timed are IDs with one and the same time.
var timed = []string{
	"01902b1c-6f1d-7e0a-9a8b-0123456789ab", "01902b1c-6f1d-7e0a-9a8b-0123456789AB",
	"01902b1c-6f1d-7e0a-9a8b-0123456789ac",
	"01902b1c-6f1d-7e0a-9a8b-0123456789ab/paid", "evt_01902b1c-6f1d-7e0a-9a8b-0123456789ab",
	"01J0NHRVRXFR59N2R14D2PF2DB", "01j0nhrvrxfr59n2r14d2pf2db",
}

func hardKeys[TTx any](t *testing.T, e *env[TTx]) {
	ids := []string{
		"x", "X", "x ", " x", "x\t", "x\n", "é", "e\u0301", "ß", "ss", "İ", "i", "\u200b", " ", "'", `"`, `\`, "%",
		"x'; --",
		"\u65e5\u672c", "\U0001f600", "\U0001f601", "\ufffd", "null", "NULL", "0", "00", "-0", "1e0", "{}", "$1",
		"?", ":a",
	}
	ids = append(ids, timed...)
	for _, n := range []int{63, 64, 127, 128, 254, 255, 256, 512, 767, 768, 1023, dedup.MaxID} {
		ids = append(ids, strings.Repeat("k", n), strings.Repeat("k", n-1)+"K")
	}
	var keys []dedup.Key
	for _, id := range ids {
		keys = append(keys, dedup.Key{Consumer: consumer, ID: id})
	}
	keys = append(keys,
		dedup.Key{
			Consumer: strings.Repeat("c", dedup.MaxConsumer), Tenant: strings.Repeat("t", dedup.MaxTenant),
			ID: strings.Repeat("i", dedup.MaxID),
		},
		dedup.Key{Consumer: strings.Repeat("c", dedup.MaxConsumer), Tenant: strings.Repeat("t", dedup.MaxTenant-1) +
			"T", ID: strings.Repeat("i", dedup.MaxID)},
	)
	e.distinct(t, keys...)
}

// distinct claims keys one by one, then all of them together: none may be taken for another.
func (e *env[TTx]) distinct(t *testing.T, keys ...dedup.Key) {
	t.Helper()
	s := e.node(t)
	var recs []dedup.Record
	for _, k := range keys {
		r := record("")
		r.Key, r.Fingerprint = k, dedup.FingerprintOf([]byte(k.String()))
		recs = append(recs, r)
	}
	for i, r := range recs {
		if got := verdicts(t, s, []dedup.Record{r}); got[0] != dedup.First {
			t.Errorf("%v: %v, want first: it was taken for another of %v", r.Key, got[0], keys[:i])
		}
	}
	for i, v := range verdicts(t, s, recs) {
		if v != dedup.Duplicate {
			t.Errorf("%v again: %v, want duplicate", keys[i], v)
		}
	}
}

func badKeys[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	for _, bad := range []struct {
		name string
		key  dedup.Key
		want error
	}{
		{"empty id", dedup.Key{Consumer: consumer}, dedup.ErrNoKey},
		{"no consumer", dedup.Key{ID: "k"}, dedup.ErrBadKey},
		{"NUL", dedup.Key{Consumer: consumer, ID: "a\x00b"}, dedup.ErrBadKey},
		{"NUL in the tenant", dedup.Key{Consumer: consumer, Tenant: "\x00", ID: "k"}, dedup.ErrBadKey},
		{"not UTF-8", dedup.Key{Consumer: consumer, ID: "\xff\xfe"}, dedup.ErrBadKey},
		{"too long", dedup.Key{Consumer: consumer, ID: strings.Repeat("k", dedup.MaxID+1)}, dedup.ErrBadKey},
		{
			"tenant too long",
			dedup.Key{Consumer: consumer, Tenant: strings.Repeat("k", dedup.MaxTenant+1), ID: "k"},
			dedup.ErrBadKey,
		},
		{"consumer too long", dedup.Key{Consumer: strings.Repeat("k", dedup.MaxConsumer+1), ID: "k"}, dedup.ErrBadKey},
	} {
		ran := false
		err := s.InTx(ctx, []dedup.Record{record("good"), {Key: bad.key}}, func(TTx, []dedup.Claim) error {
			ran = true
			return nil
		})
		if !errors.Is(err, bad.want) || ran {
			t.Errorf("%s: error %v, handler ran %v; want %v, false", bad.name, err, ran, bad.want)
		}
		if s.Retryable(err) {
			t.Errorf("%s: a bad key is retryable", bad.name)
		}
	}
	short := record("good")
	short.Window = dedup.MinWindow - 1
	if err := s.InTx(ctx, []dedup.Record{short}, func(TTx, []dedup.Claim) error { return nil }); err == nil {
		t.Errorf("a window of %v was accepted", short.Window)
	}
	e.must(t, s, record("good"), dedup.First)
}

func compact[TTx any](t *testing.T, e *env[TTx]) {
	o := e.options()
	o.Compact = true
	small, readable := e.Open(t, o), e.node(t)
	e.must(t, small, record("k"), dedup.First)
	e.must(t, small, record("k"), dedup.Duplicate)
	e.must(t, readable, record("k"), dedup.Duplicate)
	e.must(t, readable, record("l"), dedup.First)
	e.must(t, small, record("l"), dedup.Duplicate)
	tenant := record("k")
	tenant.Key.Tenant = "a"
	e.must(t, small, tenant, dedup.First)
	other := record("k")
	other.Fingerprint = dedup.FingerprintOf([]byte("other content"))
	e.must(t, small, other, dedup.Mismatch)
}

func collision[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Plant", e.Plant == nil)
	s, ctx := e.node(t), bounded(t)
	for _, k := range []dedup.Key{
		{Consumer: consumer, ID: "other"}, {Consumer: "other", ID: "k"}, {Consumer: consumer, Tenant: "other", ID: "k"},
	} {
		r := record("k-" + k.String())
		e.Plant(t, r.Key.Hash(), k)
		if _, err := e.handle(ctx, s, r); !errors.Is(err, dedup.ErrKeyCollision) {
			t.Errorf("claiming %v, whose derived key belongs to %v: %v, want ErrKeyCollision", r.Key, k, err)
		} else if s.Retryable(err) {
			t.Error("ErrKeyCollision is retryable")
		}
		if err := e.batch(ctx, s, []dedup.Record{record("beside"), r}); !errors.Is(err, dedup.ErrKeyCollision) {
			t.Errorf("claiming %v in a batch: %v, want ErrKeyCollision", r.Key, err)
		}
	}
	e.wantEffects(t)
}
