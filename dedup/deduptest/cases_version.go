package deduptest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// versionCases are about Newer.
func versionCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "a version is newer once, and an older one never", run: newerOnce[TTx]},
		{name: "versions may be negative and far apart", run: newerFarApart[TTx]},
		{name: "a version that rolls back was never seen", run: newerRollsBack[TTx]},
		{name: "one transaction may ask about an object several times", run: newerInOneTx[TTx]},
		{name: "objects with similar names are different objects", run: newerObjects[TTx]},
		{name: "the name of an object is checked before the database is asked", run: newerRefuses[TTx]},
		{name: "Newer waits for a transaction that asks about the object", perIsolation: true, run: newerWaits[TTx]},
		{name: "transactions at once write an object in the order of versions", perIsolation: true, run: newerOrder[TTx]},
	}
}

// versions is a node that remembers versions.
type versions[TTx any] struct {
	dedup.Store[TTx]
	driver.Versioner[TTx]
}

func (e *env[TTx]) versions(t *testing.T) versions[TTx] {
	t.Helper()
	s := e.node(t)
	v, ok := s.(driver.Versioner[TTx])
	hook(t, "driver.Versioner", !ok)
	return versions[TTx]{s, v}
}

// newer asks about version in a transaction of its own, which commits unless end is an error.
func (s versions[TTx]) newer(ctx context.Context, object string, version int64, end error) (newer bool, err error) {
	err = retry(ctx, s.Store, func() error {
		return s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
			var err error
			if newer, err = s.Newer(ctx, tx, object, version); err != nil {
				return err
			}
			return end
		})
	})
	return newer, err
}

// must fails if the store thinks otherwise about version.
func (s versions[TTx]) must(t *testing.T, object string, version int64, want bool) {
	t.Helper()
	got, err := s.newer(bounded(t), object, version, nil)
	if err != nil {
		t.Fatalf("%.20s, version %d: %v", object, version, err)
	}
	if got != want {
		t.Errorf("%.20s, version %d: newer is %v, want %v", object, version, got, want)
	}
}

func newerOnce[TTx any](t *testing.T, e *env[TTx]) {
	s := e.versions(t)
	for _, step := range []struct {
		version int64
		newer   bool
	}{{5, true}, {5, false}, {4, false}, {6, true}, {5, false}, {6, false}, {7, true}} {
		s.must(t, "subscription/1", step.version, step.newer)
	}
	s.must(t, "subscription/2", 1, true)
	e.versions(t).must(t, "subscription/1", 7, false) // on another node

	ctx := bounded(t)
	if err := e.Tx(ctx, e.options(), func(tx TTx) error { // not a transaction of the store
		newer, err := s.Newer(ctx, tx, "subscription/1", 8)
		if err == nil && !newer {
			t.Error("in a transaction of the caller: version 8 is not newer")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.must(t, "subscription/1", 8, false)
}

func newerFarApart[TTx any](t *testing.T, e *env[TTx]) {
	s := e.versions(t)
	for _, v := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 1 << 53, 1<<53 + 1, math.MaxInt64} {
		s.must(t, "o", v, true)
		s.must(t, "o", v, false)
	}
	s.must(t, "o", math.MinInt64, false)
	s.must(t, "first is zero", 0, true)
	s.must(t, "first is zero", -1, false)
}

func newerRollsBack[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.versions(t), bounded(t)
	undone := func(version int64) {
		t.Helper()
		if newer, err := s.newer(ctx, "o", version, errUndo); !newer || !errors.Is(err, errUndo) {
			t.Fatalf("version %d: newer is %v, error %v", version, newer, err)
		}
	}
	undone(9)
	s.must(t, "o", 3, true)
	undone(9)
	s.must(t, "o", 4, true)
	undone(5)
	undone(5)
	s.must(t, "o", 4, false)
}

// A batch is one transaction, in which several messages may be about one object.
func newerInOneTx[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.versions(t), bounded(t)
	s.must(t, "o", 1, true)
	var got []bool
	err := s.InTx(ctx, []dedup.Record{record("a"), record("b")}, func(tx TTx, _ []dedup.Claim) error {
		for _, v := range []int64{1, 3, 2, 3, 4} {
			newer, err := s.Newer(ctx, tx, "o", v)
			if err != nil {
				return err
			}
			got = append(got, newer)
		}
		return e.Effect(ctx, tx, "written")
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []bool{false, true, false, false, true}; !slices.Equal(got, want) {
		t.Errorf("versions 1, 3, 2, 3, 4 after 1: newer is %v, want %v", got, want)
	}
	s.must(t, "o", 4, false)
	if n := e.count(t, "written"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
}

func newerObjects[TTx any](t *testing.T, e *env[TTx]) {
	s := e.versions(t)
	long := strings.Repeat("x", dedup.MaxID-1)
	objects := []string{"a", "A", "a ", " a", "ä", "a\u0308", "%", `"'\`, "日本", long + "1", long + "2"}
	for _, object := range objects {
		s.must(t, object, 1, true)
	}
	for _, object := range objects {
		s.must(t, object, 1, false)
	}
}

func newerRefuses[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.versions(t), bounded(t)
	err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		for _, object := range []string{"", strings.Repeat("x", dedup.MaxID+1), "\xff", "a\x00b"} {
			if newer, err := s.Newer(ctx, tx, object, 1); newer || !errors.Is(err, dedup.ErrBadKey) {
				t.Errorf("object %.10q: newer is %v, error %v", object, newer, err)
			}
		}
		return e.Effect(ctx, tx, "written")
	})
	if err != nil || e.count(t, "written") != 1 {
		t.Errorf("the transaction cannot commit any more: %v", err)
	}
}

// Whether an older version is newer depends on whether the other transaction commits.
func newerWaits[TTx any](t *testing.T, e *env[TTx]) {
	s := e.versions(t)
	for object, end := range map[string]error{"commits": nil, "rolls back": errUndo} {
		ctx := bounded(t)
		asked, done := make(chan struct{}), make(chan error, 1)
		var once sync.Once
		go func() {
			done <- retry(ctx, s.Store, func() error {
				return s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
					if newer, err := s.Newer(ctx, tx, object, 5); err != nil || !newer {
						return fmt.Errorf("version 5: newer is %v: %w", newer, err)
					}
					once.Do(func() { close(asked) })
					wait, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
					defer cancel()
					<-wait.Done()
					return end
				})
			})
		}()
		select {
		case <-asked:
		case err := <-done:
			t.Fatalf("%s: %v", object, err)
		}
		s.must(t, object, 4, end != nil)
		if err := <-done; !errors.Is(err, end) {
			t.Errorf("%s: %v", object, err)
		}
	}
}

// newerOrder writes the versions of an object in transactions that run at once, some of which roll back. What is
// committed must be in the order of versions.
func newerOrder[TTx any](t *testing.T, e *env[TTx]) {
	s, ctx := e.versions(t), bounded(t)
	const most, workers = 30, 4
	var all []int64
	for v := range int64(most) {
		all = append(all, v, v) // each is delivered twice
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var mu sync.Mutex
	var written []int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < len(all); i += workers {
				undo := i%7 == 0 && all[i] != most-1
				err := retry(ctx, s.Store, func() error {
					mine := int64(-1)
					err := s.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
						newer, err := s.Newer(ctx, tx, "o", all[i])
						if err != nil || !newer {
							return err
						}
						if undo {
							return errUndo
						}
						mine = all[i]
						mu.Lock()
						written = append(written, mine)
						mu.Unlock()
						return e.Effect(ctx, tx, fmt.Sprint("v", mine))
					})
					if err != nil && mine >= 0 {
						mu.Lock()
						at := slices.Index(written, mine) // a twin may have come behind it
						written = slices.Delete(written, at, at+1)
						mu.Unlock()
					}
					return err
				})
				if err != nil && !errors.Is(err, errUndo) {
					t.Errorf("version %d: %v", all[i], err)
				}
			}
		})
	}
	wg.Wait()
	if len(written) == 0 || !slices.IsSorted(written) || written[len(written)-1] != most-1 {
		t.Errorf("the object was written in the order %v, want one that rises to %d", written, most-1)
	}
	for v := range int64(most) {
		want := 0
		if slices.Contains(written, v) {
			want = 1
		}
		if n := e.count(t, fmt.Sprint("v", v)); n != want {
			t.Errorf("version %d was written %d times, want %d", v, n, want)
		}
	}
}
