package deduptest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// ledgerCases are about the rows that audits compare.
func ledgerCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "the audit ledger has a row of each transaction that was committed", run: ledgerRows[TTx]},
		{name: "the audit ledger belongs to the transaction of its caller", run: ledgerOfOwnTransactions[TTx]},
		{name: "rows of the audit ledger outlive their claims and are purged", run: ledgerIsPurged[TTx]},
	}
}

func auditLedger[TTx any](t *testing.T, s dedup.Store[TTx]) dedup.AuditLedger[TTx] {
	t.Helper()
	l, ok := s.(dedup.AuditLedger[TTx])
	hook(t, "dedup.AuditLedger", !ok)
	return l
}

// wantLedger compares the rows of the ledger with want, in any order.
func (e *env[TTx]) wantLedger(t *testing.T, want ...LedgerRow) {
	t.Helper()
	hook(t, "Ledger", e.Ledger == nil)
	order := func(a, b LedgerRow) int {
		return cmp.Or(bytes.Compare(a.Key[:], b.Key[:]), cmp.Compare(a.Position, b.Position))
	}
	got := slices.SortedFunc(slices.Values(e.Ledger(t)), order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		t.Fatalf("the audit ledger has %x, want %x", got, want)
	}
}

func rowOf(id, position string) LedgerRow { return LedgerRow{record(id).Key.Hash(), position} }

// audited claims r, and records that it was handled if the claim is First. end is what the handler returns.
func audited[TTx any](t *testing.T, s dedup.Store[TTx], r dedup.Record, position string, keep time.Duration, end error) {
	t.Helper()
	ledger, ctx := auditLedger(t, s), bounded(t)
	err := retry(ctx, s, func() error {
		return s.InTx(ctx, []dedup.Record{r}, func(tx TTx, claims []dedup.Claim) error {
			if claims[0].Verdict == dedup.First {
				if err := ledger.RecordHandled(ctx, tx, r.Key, position, keep); err != nil {
					return err
				}
			}
			return end
		})
	})
	if !errors.Is(err, end) {
		t.Fatalf("%v: %v, want %v", r.Key, err, end)
	}
}

func ledgerRows[TTx any](t *testing.T, e *env[TTx]) {
	a, b := e.node(t), e.node(t)
	e.wantLedger(t)
	one := rowOf("one", "orders/0/1")
	audited(t, a, record("one"), "orders/0/1", time.Hour, errUndo)
	e.wantLedger(t)
	audited(t, a, record("one"), "orders/0/1", time.Hour, nil)
	e.wantLedger(t, one)
	audited(t, b, record("one"), "orders/0/2", time.Hour, nil) // a duplicate
	e.wantLedger(t, one)
	audited(t, b, record("odd"), "orders/\x00ü", time.Hour, nil) // a database may keep another text
	if !slices.ContainsFunc(e.Ledger(t), func(r LedgerRow) bool { return r.Key == rowOf("odd", "").Key }) {
		t.Fatal("a position with a byte that databases do not keep has no row")
	}
	// The claim is lost: another transaction with the key is committed, and two rows show it.
	ctx := bounded(t)
	if err := retry(ctx, a, func() error {
		return a.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error { return a.Forget(ctx, tx, record("one").Key) })
	}); err != nil {
		t.Fatal(err)
	}
	audited(t, b, record("one"), "orders/0/1", time.Hour, nil)
	n := 0
	for _, r := range e.Ledger(t) {
		if r == one {
			n++
		}
	}
	if n != 2 {
		t.Fatalf("%d rows of a key with which two transactions were committed", n)
	}
}

func ledgerOfOwnTransactions[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	ledger := auditLedger(t, s)
	for _, end := range []error{errUndo, nil} {
		err := e.Tx(bounded(t), e.options(), func(tx TTx) error {
			if err := ledger.RecordHandled(bounded(t), tx, record("own").Key, "orders/0/1", time.Hour); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatalf("%v, want %v", err, end)
		}
		if end != nil {
			e.wantLedger(t)
		}
	}
	e.wantLedger(t, rowOf("own", "orders/0/1"))
}

func ledgerIsPurged[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	now := time.Now()
	audited(t, s, recordAt("one", now, 2*time.Hour), "orders/0/1", 4*time.Hour, nil)
	audited(t, s, recordAt("two", now, 2*time.Hour), "orders/0/2", 8*time.Hour, nil)
	one, two := rowOf("one", "orders/0/1"), rowOf("two", "orders/0/2")
	sweepAll(t, s, 100)
	e.wantLedger(t, one, two)
	e.Age(t, 3*time.Hour)
	if swept := sweepAll(t, s, 100); swept.Keys != 2 {
		t.Fatalf("%d claims were forgotten, want 2", swept.Keys)
	}
	e.wantLedger(t, one, two)
	e.Age(t, 2*time.Hour)
	if swept := sweepAll(t, s, 100); swept.Keys != 0 {
		t.Fatalf("%d keys were counted, and there was no claim", swept.Keys)
	}
	e.wantLedger(t, two)
	e.Age(t, 4*time.Hour)
	sweepAll(t, s, 100)
	e.wantLedger(t)
}
