package deduptest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Harness is how the suite drives one kind of database.
type Harness[TTx any] struct {
	// New makes an empty database with the current schema, and removes it when t ends.
	New func(t *testing.T) DB[TTx]

	// Isolations are the values of Options.Isolation that the store offers, its default first. Every race is run under
	// each. Empty: there is nothing to choose.
	Isolations []string

	// OneWriter says that the database runs one writing transaction at a time, so that a claim meets a busy database
	// and never a busy key: an error that is Retryable takes the place of ErrInFlight.
	OneWriter bool

	// Codes says of each error code that DB.Raise understands whether it is Retryable; see PostgresCodes.
	Codes map[string]bool

	// DoesNotApply says of each case that cannot exist on this database why. Nothing else may be left out: a case whose
	// hook is nil fails.
	DoesNotApply map[string]string
}

// DB is one database under test. The fields of the first group are required. The others are hooks that single cases
// need.
type DB[TTx any] struct {
	// Open makes another node on the database, and closes it when t ends. Nodes may share a pool of 16 connections.
	Open func(t *testing.T, o Options) dedup.Store[TTx]
	// Tx runs fn in a transaction of the caller's own, without the store: commits after nil, else rolls back.
	Tx func(ctx context.Context, o Options, fn func(tx TTx) error) error
	// Effect writes a row of that name into a table of the harness, as part of tx. Names are not unique.
	Effect func(ctx context.Context, tx TTx, name string) error
	// Effects lists the committed effects, in any order, over a connection of its own.
	Effects func(t *testing.T) []string
	// Age makes the database look as if d had passed: it moves every time of the store's tables (expires_at, first_run,
	// used_until, forgotten_until, lease_until) d into the past. A node that was opened before stays usable while all
	// ageing together is shorter than dedup.UseFor, because it remembers until when it is registered.
	Age func(t *testing.T, d time.Duration)

	// SetClock gives a node of Open another clock of its own machine. The database's clock stays as it is.
	SetClock func(s dedup.Store[TTx], now func() time.Time)
	// Misuse lists the ways in which a handler can end or lose its transaction on this database.
	Misuse []Misuse[TTx]
	// Raise makes the database answer with that error code in tx, and returns the error.
	Raise func(ctx context.Context, tx TTx, code string) error
	// Lock takes a lock of that name until tx ends, the way an UPDATE of one row does, and waits as the session says.
	Lock func(ctx context.Context, tx TTx, name string) error
	// LockWait reads the settings that bound how long statements of tx wait and run. They go together into one text,
	// which is only compared.
	LockWait func(ctx context.Context, tx TTx) (string, error)
	// Wrote reports whether tx will have to write something when it commits, such as whether it has a transaction id.
	Wrote func(ctx context.Context, tx TTx) (bool, error)
	// Plant inserts a row whose derived key is at and whose natural key is k.
	Plant func(t *testing.T, at dedup.KeyHash, k dedup.Key)
	// Connections counts the connections of a node that are in use; see the case about freeing them.
	Connections func(t *testing.T, s dedup.Store[TTx]) int
	// Faulty makes a node whose first COMMIT suffers f. Everything else passes. internal/test/wireproxy does it for
	// PostgreSQL.
	Faulty func(t *testing.T, o Options, f Fault) dedup.Store[TTx]
	// NoSchema makes a node on a database without the store's tables, OldSchema one on tables of another version,
	// NotDurable one whose settings forget commits. Each must open, and be refused by Register.
	NoSchema, OldSchema, NotDurable func(t *testing.T) dedup.Store[TTx]
	// NewerSchema makes a node on tables of a newer version that works with this program. Register must accept it.
	NewerSchema func(t *testing.T) dedup.Store[TTx]
}

// Options of a node. The zero value of each field is the store's default.
type Options struct {
	Isolation string        // of Harness.Isolations
	Wait      time.Duration // how long a claim waits for a transaction that holds its key
	Compact   bool          // leave the natural key's columns out
}

// Misuse is something that a handler must not do with its transaction.
type Misuse[TTx any] struct {
	Name string
	// Do does it. Whatever it returns is swallowed, as such a handler would.
	Do func(ctx context.Context, tx TTx) error
	// Ends says that it ends the transaction or tries to, which InTx must report as ErrTxEnded. Otherwise any error
	// will do, or a success that is one.
	Ends bool
	// Reported says why this store cannot keep an effect that follows from standing without a claim, where it cannot. It
	// must then be reported as ErrTxEnded. Empty: it can, and does.
	Reported string
}

// Fault is what happens to a COMMIT on its way.
type Fault int

const (
	CommitLost Fault = iota // the connection is cut before COMMIT reaches the server, which rolls back
	AnswerLost              // the server commits, and the connection is cut before its answer arrives
	CommitLate              // the client's connection is cut, and COMMIT reaches the server LateBy later
)

// LateBy is how long CommitLate holds a COMMIT back.
const LateBy = 700 * time.Millisecond

func (f Fault) String() string {
	return [...]string{"COMMIT lost", "answer lost", "COMMIT late"}[f]
}

// TestStore runs the suite. Each case is a sub-test of its own, on a database of its own.
func TestStore[TTx any](t *testing.T, h Harness[TTx]) {
	all := slices.Concat(
		claimCases[TTx](),
		keyCases[TTx](),
		resultCases[TTx](),
		handlerCases[TTx](),
		waitCases[TTx](),
		raceCases[TTx](),
		commitCases[TTx](),
		errorCases[TTx](),
		purgeCases[TTx](),
		horizonCases[TTx](),
		windowCases[TTx](),
		sourceCases[TTx](),
	)
	for name := range h.DoesNotApply {
		if !slices.ContainsFunc(all, func(c testCase[TTx]) bool { return c.name == name }) {
			t.Errorf("Harness.DoesNotApply names %q, which is no case of the suite", name)
		}
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			if reason, ok := h.DoesNotApply[c.name]; ok {
				t.Logf("does not apply: %s", reason)
				return
			}
			if !c.perIsolation || len(h.Isolations) == 0 {
				c.run(t, newEnv(t, h, ""))
				return
			}
			for _, level := range h.Isolations {
				t.Run(level, func(t *testing.T) { c.run(t, newEnv(t, h, level)) })
			}
		})
	}
}

// testCase is one rule. Its name says the rule, so that a failure names what is broken.
type testCase[TTx any] struct {
	name         string
	perIsolation bool
	run          func(t *testing.T, e *env[TTx])
}
