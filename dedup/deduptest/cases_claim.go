package deduptest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// claimCases are the rules of one transaction after the other.
func claimCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "first wins", perIsolation: true, run: firstWins[TTx]},
		{name: "no records, no claims", run: noRecords[TTx]},
		{name: "claim in the caller's own transaction", run: ownTx[TTx]},
		{name: "a claim of the caller's own transaction rolls back with it", run: ownTxRollsBack[TTx]},
		{name: "double key in one batch: first, then duplicate or mismatch", run: doubleKey[TTx]},
		{name: "a batch of thousands", run: bigBatch[TTx]},
		{name: "answers stand in the order of the records", run: orderOfAnswers[TTx]},
		{name: "two consumers and two tenants never meet", run: scopes[TTx]},
		{name: "keys that concatenate alike never meet", run: concatenation[TTx]},
		{name: "hard keys are distinct", run: hardKeys[TTx]},
		{name: "bad keys are refused, nothing is claimed", run: badKeys[TTx]},
		{name: "mismatch is visible, with the stored fingerprint", run: mismatch[TTx]},
		{name: "a zero fingerprint matches any", run: zeroFingerprint[TTx]},
		{name: "claims say when they expire", run: expiry[TTx]},
		{name: "saved result replays byte for byte", run: savedResult[TTx]},
		{name: "a saved result rolls back with its claim", run: savedResultRollsBack[TTx]},
		{name: "forget allows a replay", run: forget[TTx]},
		{name: "forget rolls back with its transaction", run: forgetRollsBack[TTx]},
		{name: "compact rows keep the same promises", run: compact[TTx]},
		{name: "a derived key of another natural key is a collision", run: collision[TTx]},
		{name: "a transaction of duplicates writes nothing", run: writesNothing[TTx]},
		{name: "look-up finds what is committed", run: lookup[TTx]},
	}
}

func firstWins[TTx any](t *testing.T, e *env[TTx]) {
	a, b := e.node(t), e.node(t)
	e.must(t, a, record("k"), dedup.First)
	e.must(t, a, record("k"), dedup.Duplicate)
	e.must(t, b, record("k"), dedup.Duplicate)
	e.must(t, b, record("l"), dedup.First)
	e.wantEffects(t, "k", "l")
}

func noRecords[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	err := s.InTx(ctx, nil, func(tx TTx, claims []dedup.Claim) error {
		if len(claims) != 0 {
			t.Errorf("%d claims for no records", len(claims))
		}
		return e.Effect(ctx, tx, "plain")
	})
	if err != nil {
		t.Fatal(err)
	}
	e.wantEffects(t, "plain")
}

func ownTx[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
		err := e.Tx(ctx, e.options(), func(tx TTx) error {
			claims, err := s.Claim(ctx, tx, []dedup.Record{record("own")})
			if err != nil {
				return err
			}
			if claims[0].Verdict != want {
				t.Errorf("verdict %v, want %v", claims[0].Verdict, want)
			}
			if claims, err = s.Claim(ctx, tx, []dedup.Record{record("own")}); err != nil {
				return err
			}
			if claims[0].Verdict != dedup.Duplicate {
				t.Errorf("claimed again by the same transaction: %v, want duplicate", claims[0].Verdict)
			}
			return e.Effect(ctx, tx, "effect")
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	e.must(t, e.node(t), record("own"), dedup.Duplicate)
}

func ownTxRollsBack[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	err := e.Tx(ctx, e.options(), func(tx TTx) error {
		if _, err := s.Claim(ctx, tx, []dedup.Record{record("own")}); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	e.must(t, s, record("own"), dedup.First)
}

func doubleKey[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	other := record("k")
	other.Fingerprint = dedup.FingerprintOf([]byte("other content"))
	recs := []dedup.Record{record("k"), record("l"), record("k"), other, record("l")}
	want := []dedup.Verdict{dedup.First, dedup.First, dedup.Duplicate, dedup.Mismatch, dedup.Duplicate}
	for range 2 {
		if got := verdicts(t, s, recs); !slices.Equal(got, want) {
			t.Fatalf("verdicts %v, want %v", got, want)
		}
		want = []dedup.Verdict{dedup.Duplicate, dedup.Duplicate, dedup.Duplicate, dedup.Mismatch, dedup.Duplicate}
	}
}

// verdicts claims recs and commits.
func verdicts[TTx any](t *testing.T, s dedup.Store[TTx], recs []dedup.Record) (got []dedup.Verdict) {
	t.Helper()
	ctx := bounded(t)
	err := retry(ctx, s, func() error {
		return s.InTx(ctx, recs, func(_ TTx, claims []dedup.Claim) error {
			got = nil
			for _, c := range claims {
				got = append(got, c.Verdict)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(recs) {
		t.Fatalf("%d claims for %d records", len(got), len(recs))
	}
	return got
}

func bigBatch[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	recs := make([]dedup.Record, 3000)
	for i := range recs {
		recs[i] = record(fmt.Sprint("k", i))
	}
	for _, want := range []dedup.Verdict{dedup.First, dedup.Duplicate} {
		for i, got := range verdicts(t, s, recs) {
			if got != want {
				t.Fatalf("%v: %v, want %v", recs[i].Key, got, want)
			}
		}
	}
}

func orderOfAnswers[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	var recs []dedup.Record
	var want []dedup.Verdict
	for i := range 60 {
		r := record(strings.Repeat("x", i+1))
		recs, want = append(recs, r), append(want, dedup.First)
		if i%3 == 0 {
			e.must(t, s, r, dedup.First)
			want[i] = dedup.Duplicate
		}
		if i%5 == 0 && i%3 == 0 {
			recs[i].Fingerprint = dedup.FingerprintOf([]byte(r.Key.ID))
			want[i] = dedup.Mismatch
		}
	}
	if got := verdicts(t, s, recs); !slices.Equal(got, want) {
		t.Fatalf("verdicts\n%v, want\n%v", got, want)
	}
}

func scopes[TTx any](t *testing.T, e *env[TTx]) {
	e.distinct(t,
		dedup.Key{Consumer: "billing", ID: "order-1"}, dedup.Key{Consumer: "mail", ID: "order-1"},
		dedup.Key{Consumer: "billing", Tenant: "a", ID: "order-1"}, dedup.Key{Consumer: "billing", Tenant: "b", ID: "order-1"},
	)
}

func concatenation[TTx any](t *testing.T, e *env[TTx]) {
	e.distinct(t,
		dedup.Key{Consumer: "ab", ID: "c"}, dedup.Key{Consumer: "a", ID: "bc"},
		dedup.Key{Consumer: "a", Tenant: "b", ID: "c"}, dedup.Key{Consumer: "a", Tenant: "bc", ID: "c"},
		dedup.Key{Consumer: "a", Tenant: "b", ID: "cc"}, dedup.Key{Consumer: "a/b", ID: "c"},
		dedup.Key{Consumer: "a", ID: "b/c"}, dedup.Key{Consumer: "a", ID: "order"}, dedup.Key{Consumer: "a", ID: "order-1"},
	)
}

func hardKeys[TTx any](t *testing.T, e *env[TTx]) {
	ids := []string{
		"x", "X", "x ", " x", "x\t", "x\n", "é", "e\u0301", "ß", "ss", "İ", "i", "\u200b", " ", "'", `"`, `\`, "%", "x'; --",
		"\u65e5\u672c", "\U0001f600", "\U0001f601", "\ufffd", "null", "NULL", "0", "00", "-0", "1e0", "{}", "$1", "?", ":a",
	}
	for _, n := range []int{63, 64, 127, 128, 254, 255, 256, 512, 767, 768, 1023, dedup.MaxID} {
		ids = append(ids, strings.Repeat("k", n), strings.Repeat("k", n-1)+"K")
	}
	var keys []dedup.Key
	for _, id := range ids {
		keys = append(keys, dedup.Key{Consumer: consumer, ID: id})
	}
	keys = append(keys,
		dedup.Key{Consumer: strings.Repeat("c", dedup.MaxConsumer), Tenant: strings.Repeat("t", dedup.MaxTenant), ID: strings.Repeat("i", dedup.MaxID)},
		dedup.Key{Consumer: strings.Repeat("c", dedup.MaxConsumer), Tenant: strings.Repeat("t", dedup.MaxTenant-1) + "T", ID: strings.Repeat("i", dedup.MaxID)},
	)
	e.distinct(t, keys...)
}

// distinct claims keys one by one, then all of them together: each is itself and no other.
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
		{"tenant too long", dedup.Key{Consumer: consumer, Tenant: strings.Repeat("k", dedup.MaxTenant+1), ID: "k"}, dedup.ErrBadKey},
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

func mismatch[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	r, other := record("k"), record("k")
	other.Fingerprint = dedup.Fingerprint{0xff, 2, 3, 4, 5, 6, 7, 0xff} // negative as an int64
	e.must(t, s, other, dedup.First)
	c := e.must(t, s, r, dedup.Mismatch)
	if c.Fingerprint != other.Fingerprint {
		t.Errorf("the claim shows fingerprint %x, stored was %x", c.Fingerprint, other.Fingerprint)
	}
	e.must(t, s, other, dedup.Duplicate)
	e.wantEffects(t, "k")
}

func zeroFingerprint[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	r, zero := record("k"), record("k")
	zero.Fingerprint = dedup.Fingerprint{}
	e.must(t, s, r, dedup.First)
	e.must(t, s, zero, dedup.Duplicate)

	r, zero = record("l"), record("l")
	zero.Fingerprint = dedup.Fingerprint{}
	e.must(t, s, zero, dedup.First)
	if c := e.must(t, s, r, dedup.Duplicate); !c.Fingerprint.IsZero() {
		t.Errorf("an unknown fingerprint came back as %x", c.Fingerprint)
	}
}

func expiry[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	ahead := time.Now().Add(30 * time.Minute)
	for _, c := range []struct {
		name string
		rec  dedup.Record
		want time.Time
	}{
		{"default window", recordAt("a", time.Now(), 0), time.Now().Add(dedup.DefaultWindow)},
		{"own window", recordAt("b", time.Now(), 2*time.Hour), time.Now().Add(2 * time.Hour)},
		{"an old message counts from its claim", recordAt("c", time.Now().Add(-100*time.Hour), 2*time.Hour), time.Now().Add(2 * time.Hour)},
		{"a message of the future counts from its time", recordAt("d", ahead, 2*time.Hour), ahead.Add(2 * time.Hour)},
		{"no time", recordAt("e", time.Time{}, 2*time.Hour), time.Now().Add(2 * time.Hour)},
	} {
		e.must(t, s, c.rec, dedup.First)
		got := e.must(t, s, c.rec, dedup.Duplicate).ExpiresAt
		if off := got.Sub(c.want); off < -2*time.Second || off > limit {
			t.Errorf("%s: expires at %v, want %v", c.name, got, c.want)
		}
	}
}

func savedResult[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	rs, ok := s.(dedup.ResultStore[TTx])
	hook(t, "dedup.ResultStore", !ok)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, result := range map[string][]byte{
		"bytes": every, "empty": {}, "nil": nil, "large": bytes.Repeat(every, 1000), "text": []byte(`{"a": 1.0}` + "\r\n"),
	} {
		save := func(result []byte) error {
			return s.InTx(ctx, []dedup.Record{record(name)}, func(tx TTx, _ []dedup.Claim) error {
				return rs.SaveResult(ctx, tx, record(name).Key, result)
			})
		}
		if err := save(result); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := e.must(t, s, record(name), dedup.Duplicate).Result
		if got == nil || !bytes.Equal(got, result) {
			t.Errorf("%s: saved %d bytes, replayed %d (nil: %v)", name, len(result), len(got), got == nil)
		}
	}
	e.must(t, s, record("none"), dedup.First)
	if c := e.must(t, s, record("none"), dedup.Duplicate); c.Result != nil {
		t.Errorf("a result that nobody saved: %q", c.Result)
	}
	if err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		return rs.SaveResult(ctx, tx, record("unclaimed").Key, every)
	}); err == nil {
		t.Error("a result was saved for a key without a claim, where nobody will find it")
	}
}

func savedResultRollsBack[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	rs, ok := s.(dedup.ResultStore[TTx])
	hook(t, "dedup.ResultStore", !ok)
	attempt := func(end error) error {
		return s.InTx(ctx, []dedup.Record{record("k")}, func(tx TTx, _ []dedup.Claim) error {
			return errors.Join(rs.SaveResult(ctx, tx, record("k").Key, []byte(fmt.Sprint(end))), end)
		})
	}
	if err := attempt(errUndo); !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.First)
	if c := e.must(t, s, record("k"), dedup.Duplicate); c.Result != nil {
		t.Errorf("a result %q that was rolled back", c.Result)
	}
}

func forget[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	e.must(t, s, record("k"), dedup.First)
	e.must(t, s, record("l"), dedup.First)
	err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		return s.Forget(ctx, tx, record("k").Key, record("never claimed").Key)
	})
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.First)
	e.must(t, s, record("l"), dedup.Duplicate)
	e.wantEffects(t, "k", "k", "l")

	// In the transaction of the claim, as parking does: it settles whether an earlier COMMIT happened, and leaves nothing.
	err = s.InTx(ctx, []dedup.Record{record("m")}, func(tx TTx, _ []dedup.Claim) error {
		return s.Forget(ctx, tx, record("m").Key)
	})
	if err != nil {
		t.Fatal(err)
	}
	e.must(t, s, record("m"), dedup.First)
}

func forgetRollsBack[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	e.must(t, s, record("k"), dedup.First)
	err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		if err := s.Forget(ctx, tx, record("k").Key); err != nil {
			return err
		}
		return errUndo
	})
	if !errors.Is(err, errUndo) {
		t.Fatal(err)
	}
	e.must(t, s, record("k"), dedup.Duplicate)
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
		e.Plant(t, r.Key.Derive(), k)
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

func writesNothing[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Wrote", e.Wrote == nil)
	s, ctx := e.node(t), bounded(t)
	for _, recs := range [][]dedup.Record{{record("one")}, {record("a"), record("b"), record("c")}} {
		for i, want := range []bool{true, false} {
			err := s.InTx(ctx, recs, func(tx TTx, _ []dedup.Claim) error {
				wrote, err := e.Wrote(ctx, tx)
				if wrote != want {
					t.Errorf("claim %d of %d keys: transaction has written: %v, want %v", i+1, len(recs), wrote, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func lookup[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.node(t), bounded(t)
	look, ok := s.(dedup.Lookuper)
	hook(t, "dedup.Lookuper", !ok)
	r := record("k")
	if _, found, err := look.Lookup(ctx, r.Key); found || err != nil {
		t.Fatalf("before the claim: found %v, error %v", found, err)
	}
	e.must(t, s, r, dedup.First)
	c, found, err := look.Lookup(ctx, r.Key)
	if err != nil || !found || c.Fingerprint != r.Fingerprint || c.ExpiresAt.Before(time.Now()) {
		t.Fatalf("after the claim: %+v, found %v, error %v", c, found, err)
	}
}
