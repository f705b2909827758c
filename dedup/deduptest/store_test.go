package deduptest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// These tests do not repeat TestStore. They test properties that other packages' tests rely on, and functions that only
// this store has.

func rec(id string) dedup.Record {
	return dedup.Record{Key: dedup.Key{Consumer: "c", ID: id}, Fingerprint: dedup.FingerprintOf([]byte(id))}
}

func verdicts(claims []dedup.Claim) (v []dedup.Verdict) {
	for _, c := range claims {
		v = append(v, c.Verdict)
	}
	return v
}

// run claims ids and counts one effect for each that is new.
func run(ctx context.Context, s *deduptest.Store, ids ...string) error {
	var recs []dedup.Record
	for _, id := range ids {
		recs = append(recs, rec(id))
	}
	return s.InTx(ctx, recs, func(tx *deduptest.Tx, claims []dedup.Claim) error {
		for i, c := range claims {
			if c.Verdict == dedup.First {
				if err := tx.Add(ids[i]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestStoreLeavesNothingBehindUnlessItCommits(t *testing.T) {
	errHandler := errors.New("handler")
	for _, tc := range []struct {
		name string
		fn   func(cancel func(), tx *deduptest.Tx) error
		want error
	}{
		{"error", func(func(), *deduptest.Tx) error { return errHandler }, errHandler},
		{"panic", func(func(), *deduptest.Tx) error { panic(errHandler) }, nil},
		{"goexit", func(func(), *deduptest.Tx) error { runtime.Goexit(); return nil }, nil},
		{"ctx ended", func(cancel func(), _ *deduptest.Tx) error { cancel(); return nil }, context.Canceled},
		{"swallowed error", func(_ func(), tx *deduptest.Tx) error { _ = tx.Add(""); return nil }, nil},
		{
			"swallowed failure", func(_ func(), tx *deduptest.Tx) error { _ = tx.Fail(errHandler); return nil },
			errHandler,
		},
		{
			"own commit", func(_ func(), tx *deduptest.Tx) error { _ = tx.Commit(t.Context()); return nil },
			dedup.ErrTxEnded,
		},
		{"own rollback", func(_ func(), tx *deduptest.Tx) error { _ = tx.Rollback(); return nil }, dedup.ErrTxEnded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := deduptest.NewStore()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var err error
			done := make(chan struct{})
			go func() { // a goroutine of its own, for Goexit to end
				defer close(done)
				defer func() { _ = recover() }()
				err = s.InTx(ctx, []dedup.Record{rec("1")}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
					if err := errors.Join(tx.Add("1"), tx.Put(ctx, "v", 1)); err != nil {
						t.Error(err)
					}
					return tc.fn(cancel, tx)
				})
			}()
			<-done
			if tc.want != nil && !errors.Is(err, tc.want) {
				t.Errorf("err = %v, want %v", err, tc.want)
			}
			if tc.name == "swallowed error" && (err == nil || errors.Is(err, dedup.ErrTxEnded)) {
				t.Errorf("err = %v, want one that does not say that the handler ended the transaction", err)
			}
			db := s.Database()
			_, found, _ := s.Lookup(t.Context(), rec("1").Key)
			if db.Count("1") != 0 || db.Value("v") != nil || found || db.Open() != 0 {
				t.Errorf("left behind: %d effects, value %v, claim %v, %d transactions", db.Count("1"), db.Value("v"),
					found, db.Open())
			}
		})
	}
}

func TestStoreTwinWaitsABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := deduptest.NewDatabase()
		one, two := db.NewStore(), db.NewStore()
		two.Wait = 200 * time.Millisecond
		go func() {
			if err := one.InTx(t.Context(), []dedup.Record{rec("1")}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
				<-time.After(300 * time.Millisecond)
				return tx.Add("1")
			}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		start := time.Now()
		if err := run(t.Context(), two, "1"); !errors.Is(err, dedup.ErrInFlight) || two.Retryable(err) {
			t.Errorf("first try: %v (retryable %v), want ErrInFlight and not retryable", err, two.Retryable(err))
		}
		if waited := time.Since(start); waited != two.Wait {
			t.Errorf("waited %v, want %v", waited, two.Wait)
		}
		if err := run(t.Context(), two, "0", "1", "2"); err != nil { // commits while this one waits
			t.Error(err)
		}
		if got := []int{db.Count("0"), db.Count("1"), db.Count("2")}; !slices.Equal(got, []int{1, 1, 1}) {
			t.Errorf("effects %v, want one each", got)
		}
	})
}

func TestStoreDeadlocksAreRetryable(t *testing.T) {
	s := deduptest.NewStore()
	s.Wait = time.Minute
	var wg sync.WaitGroup
	meet := make(chan struct{}, 2)
	deadlocks := make(chan error, 2)
	for _, ids := range [][2]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			for first := true; ; first = false {
				err := s.InTx(t.Context(), []dedup.Record{rec(ids[0])}, func(tx *deduptest.Tx, c []dedup.Claim) error {
					if first {
						meet <- struct{}{}
						for len(meet) < 2 {
							runtime.Gosched()
						}
					}
					_, err := s.Claim(t.Context(), tx, []dedup.Record{rec(ids[1])})
					return err
				})
				if err == nil {
					return
				}
				if !s.Retryable(err) {
					t.Error(err)
				}
				deadlocks <- err
			}
		})
	}
	wg.Wait()
	if len(deadlocks) != 1 {
		t.Errorf("%d deadlocks, want 1", len(deadlocks))
	}
}

// Concurrent batches with overlapping keys claim each key once and do not deadlock forever.
func TestStoreBatchesSideBySide(t *testing.T) {
	s := deduptest.NewStore()
	s.Wait = time.Minute
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for round := range 50 {
				var ids []string
				for i := range 6 {
					ids = append(ids, fmt.Sprint((round*4+i*(2*w+1))%200))
				}
				if err := run(t.Context(), s, ids...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 200 {
		if n := s.Database().Count(fmt.Sprint(i)); n > 1 {
			t.Errorf("key %d ran %d times", i, n)
		}
	}
}

func TestStoreAnswersInTheOrderOfTheCall(t *testing.T) {
	s := deduptest.NewStore()
	other := rec("b")
	other.Fingerprint = dedup.FingerprintOf([]byte("other"))
	recs := []dedup.Record{rec("b"), rec("a"), other, rec("b"), rec("c")}
	want := []dedup.Verdict{dedup.First, dedup.First, dedup.Mismatch, dedup.Duplicate, dedup.First}
	if err := s.InTx(t.Context(), recs, func(tx *deduptest.Tx, claims []dedup.Claim) error {
		if diff := cmp.Diff(want, verdicts(claims)); diff != "" {
			t.Error(diff)
		}
		return s.Forget(t.Context(), tx, rec("b").Key)
	}); err != nil {
		t.Fatal(err)
	}
	want = []dedup.Verdict{dedup.First, dedup.Duplicate, dedup.Mismatch, dedup.Duplicate, dedup.Duplicate}
	if err := s.InTx(t.Context(), recs, func(_ *deduptest.Tx, claims []dedup.Claim) error {
		if diff := cmp.Diff(want, verdicts(claims)); diff != "" {
			t.Error(diff)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestStoreForgetsByItsClock(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	db := deduptest.NewDatabase()
	db.Now = func() time.Time { return now }
	s := db.NewStore()
	at := func(id string, ts time.Time) dedup.Record {
		return dedup.Record{Key: dedup.Key{Consumer: "c", ID: id}, Time: ts, Window: time.Hour}
	}
	verdict := func(r dedup.Record) (v dedup.Verdict) {
		t.Helper()
		if err := s.InTx(t.Context(), []dedup.Record{r}, func(_ *deduptest.Tx, c []dedup.Claim) error {
			v = c[0].Verdict
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return v
	}
	start := now
	verdict(at("old", start))
	if v := verdict(at("ancient", start.Add(-time.Hour*1000))); v != dedup.First {
		t.Errorf("before anything was forgotten: %v, want first", v)
	}
	now = now.Add(2 * time.Hour)
	verdict(at("young", now))
	if swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "x", Lease: time.Minute, Limit: 1}); err != nil ||
		swept.Keys != 1 || swept.Done {
		t.Errorf("first purge: %+v, %v; want one key and more to do", swept, err)
	}
	if swept, _ := s.Purge(t.Context(), dedup.Sweep{Owner: "y", Lease: time.Minute}); !swept.Busy {
		t.Errorf("another owner within the lease: %+v, want busy", swept)
	}
	swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "x", Lease: time.Minute})
	if want := (dedup.SweepResult{Clock: now, Keys: 1, Lag: time.Hour, Done: true}); err != nil || swept != want {
		t.Errorf("second purge: %+v, %v; want %+v", swept, err, want)
	}
	for _, tc := range []struct {
		name string
		rec  dedup.Record
		want dedup.Verdict
	}{
		{"forgotten", at("old", start), dedup.Unprovable},
		{"kept", at("young", now), dedup.Duplicate},
		{"new", at("new", now), dedup.First},
		{"timeless", at("timeless", time.Time{}), dedup.First},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if v := verdict(tc.rec); v != tc.want {
				t.Errorf("%v, want %v", v, tc.want)
			}
		})
	}
	db.Age(3 * time.Hour)
	if swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "y"}); err != nil || swept.Keys != 3 {
		t.Errorf("after ageing: %+v, %v; want 3 keys", swept, err)
	}
}

func TestStoreResults(t *testing.T) {
	s := deduptest.NewStore()
	if err := s.InTx(t.Context(), []dedup.Record{rec("1")}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		if err := s.SaveResult(t.Context(), tx, rec("2").Key, nil); err == nil {
			t.Error("saved a result under a key that is not claimed")
		}
		return s.SaveResult(t.Context(), tx, rec("1").Key, []byte{0, 255})
	}); err != nil {
		t.Fatal(err)
	}
	c, found, err := s.Lookup(t.Context(), rec("1").Key)
	if err != nil || !found || string(c.Result) != "\x00\xff" {
		t.Errorf("Lookup: %+v, %v, %v", c, found, err)
	}
}

func TestStoreRefusesANameTwice(t *testing.T) {
	db := deduptest.NewDatabase()
	s := db.NewStore()
	if err := errors.Join(s.Register(t.Context(), "a", 0), s.Register(t.Context(), "b", time.Hour),
		db.NewStore().Register(t.Context(), "a", 0)); err != nil {
		t.Error(err)
	}
	if err := s.Register(t.Context(), "a", 0); !errors.Is(err, dedup.ErrNameTaken) {
		t.Errorf("second a: %v, want ErrNameTaken", err)
	}
	if err := s.Register(t.Context(), "", 0); !errors.Is(err, dedup.ErrBadKey) {
		t.Errorf("empty name: %v, want ErrBadKey", err)
	}
	if err := s.Register(t.Context(), "c", time.Minute); err == nil {
		t.Error("a window of a minute is accepted")
	}
}

func TestDatabaseStops(t *testing.T) {
	s := deduptest.NewStore()
	db := s.Database()
	if err := s.InTx(t.Context(), []dedup.Record{rec("1")}, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		db.Stop()
		return nil
	}); !s.Retryable(err) {
		t.Errorf("stopped within a transaction: %v, want it retryable", err)
	}
	if err := run(t.Context(), s, "1"); !s.Retryable(err) {
		t.Errorf("while stopped: %v, want it retryable", err)
	}
	db.Start()
	if err := run(t.Context(), s, "1"); err != nil || db.Count("1") != 1 {
		t.Errorf("after Start: %v, %d effects", err, db.Count("1"))
	}
}

func TestTxUpdatesExcludeEachOther(t *testing.T) {
	db := deduptest.NewDatabase()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				tx, err := db.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				err = tx.Update(t.Context(), "n", func(old any) any { n, _ := old.(int); return n + 1 })
				if err := errors.Join(err, tx.Commit(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := db.Value("n"); n != 200 {
		t.Errorf("n = %v, want 200", n)
	}
}
