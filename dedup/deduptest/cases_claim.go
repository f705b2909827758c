package deduptest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// claimCases are the rules for transactions that run one after the other.
func claimCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "first wins", perIsolation: true, run: firstWins[TTx]},
		{name: "no records, no claims", run: noRecords[TTx]},
		{name: "claim in the caller's own transaction", run: ownTx[TTx]},
		{name: "a claim of the caller's own transaction rolls back with it", run: ownTxRollsBack[TTx]},
		{name: "double key in one batch: first, then duplicate or mismatch", run: doubleKey[TTx]},
		{name: "a batch of thousands", run: bigBatch[TTx]},
		{name: "answers stand in the order of the records", run: orderOfAnswers[TTx]},
		{name: "mismatch is visible, with the stored fingerprint", run: mismatch[TTx]},
		{name: "a zero fingerprint matches any", run: zeroFingerprint[TTx]},
		{name: "claims say when they expire", run: expiry[TTx]},
		{name: "a transaction of duplicates writes nothing", run: writesNothing[TTx]},
		{name: "a redelivered record gets the same answers", perIsolation: true, run: redelivered[TTx]},
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

func redelivered[TTx any](t *testing.T, e *env[TTx]) {
	a, b := e.node(t), e.node(t)
	again := func(id string) dedup.Record {
		r := record(id)
		r.Redelivered = true
		return r
	}
	e.must(t, a, again("k"), dedup.First) // the first delivery has failed
	e.must(t, a, again("k"), dedup.Duplicate)
	e.must(t, b, again("k"), dedup.Duplicate)
	other := again("k")
	other.Fingerprint = dedup.FingerprintOf([]byte("other content"))
	if c := e.must(t, b, other, dedup.Mismatch); c.Fingerprint != record("k").Fingerprint {
		t.Errorf("the stored fingerprint is %x, want %x", c.Fingerprint, record("k").Fingerprint)
	}
	e.wantEffects(t, "k")
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
	const clocks = 2 * time.Second // how far the database's clock may differ
	for _, c := range []struct {
		name string
		rec  dedup.Record
		from time.Time // zero: the claim's
		keep time.Duration
	}{
		{"default window", recordAt("a", time.Now(), 0), time.Time{}, dedup.DefaultWindow},
		{"own window", recordAt("b", time.Now(), 2*time.Hour), time.Time{}, 2 * time.Hour},
		{
			"an old message counts from its claim", recordAt("c", time.Now().Add(-100*time.Hour), 2*time.Hour),
			time.Time{},
			2 * time.Hour,
		},
		{"a message of the future counts from its time", recordAt("d", ahead, 2*time.Hour), ahead, 2 * time.Hour},
		{"no time", recordAt("e", time.Time{}, 2*time.Hour), time.Time{}, 2 * time.Hour},
	} {
		before, after := c.from, c.from
		if c.from.IsZero() {
			before = time.Now()
		}
		e.must(t, s, c.rec, dedup.First)
		if c.from.IsZero() {
			after = time.Now()
		}
		got := e.must(t, s, c.rec, dedup.Duplicate).ExpiresAt.Add(-c.keep)
		if got.Before(before.Add(-clocks)) || got.After(after.Add(clocks)) {
			t.Errorf("%s: expires %v after %v, want one from %v to %v", c.name, c.keep, got, before, after)
		}
	}
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
