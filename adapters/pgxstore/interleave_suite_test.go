package pgxstore_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

// TestInterleaveedStore runs the suite for stores with a store that gives each function of InTx the transaction of a
// handler in Interleave. So everything that the suite says about a transaction is shown for those too.
func TestInterleaveedStore(t *testing.T) {
	t.Parallel() // beside the other suites
	for i, server := range []struct {
		name string
		at   func(t *testing.T) place
	}{
		{"postgres15", func(t *testing.T) place { return placeOn(t, testdb.Postgres(t)) }},
		{"postgres18", func(t *testing.T) place { return placeOn(t, testdb.Postgres18(t)) }},
		{"pgbouncer", func(t *testing.T) place { return behindPgBouncer(t, "cache_describe") }},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			deduptest.TestStore(t, deduptest.Harness[pgx.Tx]{
				New: func(t *testing.T) deduptest.DB[pgx.Tx] {
					db := newDBAt(t, server.at(t))
					open, faulty := db.Open, db.Faulty
					db.Open = func(t *testing.T, o deduptest.Options) dedup.Store[pgx.Tx] { return interleaved{open(t, o).(*node)} }
					db.Faulty = func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[pgx.Tx] {
						return interleaved{faulty(t, o, f).(*node)}
					}
					connections, setClock := db.Connections, db.SetClock
					db.Connections = func(t *testing.T,
						s dedup.Store[pgx.Tx],
					) int {
						return connections(t, plainNode(s))
					}
					if setClock != nil {
						db.SetClock = func(s dedup.Store[pgx.Tx], now func() time.Time) { setClock(plainNode(s), now) }
					}
					return db
				},
				Isolations: isolations,
				Select: func(name, level string) bool { // TestStore runs each case on each of the servers
					return matrix.Dealt(name, i, 3) && isolations.One(i)(name, level)
				},
				Codes: deduptest.PostgresCodes(),
			})
		})
	}
}

func plainNode(s dedup.Store[pgx.Tx]) dedup.Store[pgx.Tx] {
	if f, ok := s.(interleaved); ok {
		return f.node
	}
	return s
}

// interleaved is a Store that gives fn the transaction of a handler in Interleave, unless nothing was claimed.
type interleaved struct{ *node }

func (f interleaved) InTx(ctx context.Context, recs []dedup.Record, fn func(pgx.Tx, []dedup.Claim) error) error {
	return f.node.InTx(ctx, recs, func(tx pgx.Tx, claims []dedup.Claim) error {
		var panicked any
		exited := true
		_, err := f.Interleave(ctx, tx, []string{""}, []func(context.Context, pgx.Tx) error{func(_ context.Context, tx pgx.Tx) (err error) {
			defer func() {
				if panicked = recover(); panicked != nil {
					exited, err = false, errors.New("panic")
				}
			}()
			err = fn(tx, claims)
			exited = false
			return err
		}})
		switch {
		case panicked != nil:
			panic(panicked)
		case exited:
			runtime.Goexit()
		}
		return err
	})
}

// VerifyTx is not for handlers in Interleave, which verifies by itself.
func (f interleaved) VerifyTx(context.Context, pgx.Tx) error { return nil }
