package deduptest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestStoreInMemory(t *testing.T) {
	deduptest.TestStore(t, deduptest.Harness[*deduptest.Tx]{
		New:   inMemory,
		Codes: map[string]deduptest.Code{"constraint": {}, "down": {Retryable: true}},
		DoesNotApply: map[string]string{
			"compact rows keep the same promises":                              "a map has no columns",
			"a compact store archives hashes":                                  "a map has no columns",
			"the handler's lock wait is the session's":                         "there are no sessions",
			"Register refuses a missing schema and names the fix":              "a map has no schema",
			"Register refuses another version of the schema and names the fix": "a map has no schema",
			"Register accepts a newer schema that works with this program":     "a map has no schema",
			"a purge of tables that need a newer program forgets nothing":      "a map has no schema",
			"Register refuses a database that forgets commits":                 "it does not survive its process, and does not pretend to",
			"a missing table is the database's fault":                          "a map has no tables",
			"a source that another process is registering is waited for":       "a map is locked for each call",
			"each error code of COMMIT tells whether the outcome is known":     "a map has no triggers",
		},
	})
}

func inMemory(t *testing.T) deduptest.DB[*deduptest.Tx] {
	db := deduptest.NewDatabase()
	var written sync.Map // names of effects; the Database counts them
	t.Cleanup(func() {
		if n := db.Open(); n != 0 {
			t.Errorf("%d transactions were left open", n)
		}
	})
	return deduptest.DB[*deduptest.Tx]{
		Open: func(_ *testing.T, o deduptest.Options) dedup.Store[*deduptest.Tx] {
			s := db.NewStore()
			s.Wait = o.Wait
			return s
		},
		Tx: func(ctx context.Context, _ deduptest.Options, fn func(*deduptest.Tx) error) error {
			tx, err := db.Begin(ctx)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := fn(tx); err != nil {
				return err
			}
			return tx.Commit(ctx)
		},
		Effect: func(_ context.Context, tx *deduptest.Tx, name string) error {
			written.Store(name, true)
			return tx.Add("effect " + name)
		},
		Effects: func(*testing.T) (names []string) {
			for name := range written.Range {
				for range db.Count("effect " + name.(string)) {
					names = append(names, name.(string))
				}
			}
			return names
		},
		SetClock: func(s dedup.Store[*deduptest.Tx], now func() time.Time) { s.(*deduptest.Store).Clock = now },
		Raise: func(_ context.Context, tx *deduptest.Tx, code string) error {
			if code == "constraint" {
				return tx.Add("")
			}
			db.Stop()
			defer db.Start()
			return tx.Add("x")
		},
		Faulty: func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[*deduptest.Tx] {
			s := db.NewStore()
			s.Wait, s.OnCommit = o.Wait, faulty(t, f)
			return s
		},
		Plant: func(_ *testing.T, at dedup.KeyHash, k dedup.Key) { db.Plant(at, k) },
		Wrote: func(_ context.Context, tx *deduptest.Tx) (bool, error) { return tx.Wrote(), nil },
		Age:   func(_ *testing.T, d time.Duration) { db.Age(d) },
		Lock:  func(ctx context.Context, tx *deduptest.Tx, name string) error { return tx.Put(ctx, "lock "+name, 1) },
		Misuse: []deduptest.Misuse[*deduptest.Tx]{
			{Name: "swallowed error", Do: func(_ context.Context, tx *deduptest.Tx) error { return tx.Add("") }},
			{Name: "Commit", Ends: true, Do: func(ctx context.Context, tx *deduptest.Tx) error { return tx.Commit(ctx) }},
			{Name: "Rollback", Ends: true, Do: func(_ context.Context, tx *deduptest.Tx) error { return tx.Rollback() }},
			{Name: "database restarted", Do: func(context.Context, *deduptest.Tx) error {
				db.Stop()
				db.Start()
				return errors.New("restarted")
			}},
		},
	}
}

// faulty lets the first COMMIT suffer f.
func faulty(t *testing.T, f deduptest.Fault) func(context.Context, *deduptest.Tx) error {
	var struck atomic.Bool
	var late sync.WaitGroup
	t.Cleanup(late.Wait)
	return func(ctx context.Context, tx *deduptest.Tx) error {
		if !struck.CompareAndSwap(false, true) {
			return tx.Commit(ctx)
		}
		switch f {
		case deduptest.CommitLost:
			_ = tx.Rollback()
		case deduptest.AnswerLost:
			_ = tx.Commit(ctx)
		case deduptest.CommitLate:
			late.Go(func() {
				<-time.After(deduptest.LateBy)
				_ = tx.Commit(context.WithoutCancel(ctx))
			})
		}
		return fmt.Errorf("connection lost: %w", deduptest.ErrDown)
	}
}
