package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// claimWhatIsFreed claims keys that another transaction holds and that are freed one after another. With several keys,
// each single wait is short enough.
func claimWhatIsFreed(t *testing.T, holder, s *node, round, keys int) (took time.Duration, err error) {
	t.Helper()
	var recs []dedup.Record
	for i := range keys {
		recs = append(recs, record(fmt.Sprintf("%d of %d/%d", i, keys, round)))
	}
	slices.SortFunc(recs, func(a, b dedup.Record) int { return a.Key.Hash().Compare(b.Key.Hash()) })
	var held, done sync.WaitGroup
	free := make(chan struct{})
	for i, r := range recs {
		held.Add(1)
		hold := sync.OnceFunc(held.Done)
		done.Go(func() {
			defer hold()
			err := holder.InTx(context.Background(), []dedup.Record{r}, func(*sql.Tx, []dedup.Claim) error {
				hold()
				<-free
				<-time.After(time.Duration(i) * 700 * time.Millisecond)
				return errUndo
			})
			if !errors.Is(err, errUndo) {
				t.Error(err)
			}
		})
	}
	held.Wait()
	if keys > 1 {
		time.AfterFunc(700*time.Millisecond, func() { close(free) })
	}
	began := time.Now()
	err = s.InTx(t.Context(), recs, func(*sql.Tx, []dedup.Claim) error { return nil })
	took = time.Since(began)
	if keys == 1 {
		close(free)
	}
	done.Wait()
	if err == nil {
		return took, nil
	}
	for _, c := range claim(t, holder, recs...) {
		if c.Verdict != dedup.First {
			t.Errorf("verdict %v at the end", c.Verdict)
		}
	}
	return took, err
}

// A sweeper that holds the lease must not be refused because other sweepers are checking the lease at that moment.
func TestMySQLSweeperWaitsForThoseThatLook(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{})
	purge := func(owner string) (dedup.SweepResult, error) {
		return s.Purge(t.Context(), dedup.Sweep{Owner: owner, Lease: time.Hour, Limit: 10})
	}
	if swept, err := purge("me"); err != nil || swept.Busy {
		t.Fatalf("Purge = %+v, %v", swept, err)
	}
	mine := make(chan error, 1)
	err := inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error {
		if _, err := tx.Exec(`SELECT 1 FROM txonce_sweep FOR UPDATE`); err != nil {
			return err
		}
		if swept, err := purge("other"); err != nil || !swept.Busy {
			t.Errorf("another sweeper: %+v, %v; want Busy", swept, err)
		}
		go func() {
			swept, err := purge("me")
			if swept.Busy {
				err = errors.New("busy")
			}
			mine <- err
		}()
		select {
		case err := <-mine:
			return fmt.Errorf("the sweeper did not wait: %w", err)
		case <-time.After(200 * time.Millisecond):
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-mine; err != nil {
		t.Error(err)
	}
}

// A caller's transaction may have a higher isolation level than the Store's, and a snapshot from before a sweep.
func TestMySQLClaimInASnapshotOlderThanASweep(t *testing.T) {
	d := openMySQL(t)
	s := d.open(t, d.dsn, deduptest.Options{}) // READ COMMITTED
	old := record("k")
	old.Time, old.Window = time.Now().Add(-2*time.Hour), 3*time.Hour
	claim(t, s, old)
	err := inTx(t.Context(), d.db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}, func(tx *sql.Tx) error {
		var before sql.NullInt64
		if err := tx.QueryRow(`SELECT forgotten_until FROM txonce_sweep`).Scan(&before); err != nil {
			return err
		}
		d.age(t, 4*time.Hour)
		old.Time = old.Time.Add(-4 * time.Hour)
		if swept, err := s.Purge(t.Context(), dedup.Sweep{Owner: "me", Lease: time.Second, Limit: 10}); err != nil ||
			swept.Keys != 1 {
			t.Fatalf("Purge = %+v, %v", swept, err)
		}
		answers, err := s.Claim(t.Context(), tx, []dedup.Record{old})
		if err == nil && answers[0].Verdict != dedup.Unprovable {
			t.Errorf("verdict %v, want unprovable", answers[0].Verdict)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
