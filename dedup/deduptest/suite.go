package deduptest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// Harness tells the suite how to use one kind of database.
type Harness[TTx any] struct {
	// New makes an empty database with the current schema, and removes it when t ends.
	New func(t *testing.T) DB[TTx]

	// Isolations are the values of Options.Isolation that the store supports, its default first. Every race is run
	// under each of them. Empty: there is only one.
	Isolations []string

	// Select reports whether a case runs at a level of Isolations; the level is empty for a case that runs at one level
	// only. A case that it leaves out is not in the output. Nil: every case runs at every level.
	Select func(name, isolation string) bool

	// OneWriter says that the database runs one writing transaction at a time. A claim then never finds its key held:
	// it waits for the database, and fails with a Retryable error instead of ErrInFlight.
	OneWriter bool

	// Codes says for each error code that DB.Raise accepts how the store classifies it; see PostgresCodes.
	Codes map[string]Code

	// DoesNotApply names the cases that cannot exist on this database, each with the reason. Any other case whose hook
	// is nil fails.
	DoesNotApply map[string]string
}

// DB is one database under test. The fields of the first group are required. The others are hooks for single cases; see
// Harness.DoesNotApply.
type DB[TTx any] struct {
	// Open returns another node on the database, and closes it when t ends. Nodes may share a pool of 16 connections.
	Open func(t *testing.T, o Options) dedup.Store[TTx]
	// Tx runs fn in a transaction that does not belong to the store. It commits after nil and rolls back after an
	// error.
	Tx func(ctx context.Context, o Options, fn func(tx TTx) error) error
	// Effect writes a row with that name into a table of the harness, as part of tx. Names need not be unique.
	Effect func(ctx context.Context, tx TTx, name string) error
	// Effects lists the committed effects, in any order, on a connection of its own.
	Effects func(t *testing.T) []string
	// Age makes the database look as if d had passed: it subtracts d from every time in the store's tables (expires_at,
	// first_run, used_until, forgotten_until, lease_until). A node that was opened before can be used while the sum of
	// all ageing is shorter than driver.UseFor, because it remembers until when it is registered.
	Age func(t *testing.T, d time.Duration)

	// SetClock replaces the machine's clock of a node of Open. The database's clock stays as it is.
	SetClock func(s dedup.Store[TTx], now func() time.Time)
	// Misuse lists how a handler can end or lose its transaction on this database.
	Misuse []Misuse[TTx]
	// Raise makes the database answer a statement in tx with that error code, and returns the error.
	Raise func(ctx context.Context, tx TTx, code string) error
	// RaiseAtCommit makes the database answer COMMIT of tx with that error code, as a deferred trigger can.
	RaiseAtCommit func(ctx context.Context, tx TTx, code string) error
	// Lock takes a lock with that name until tx ends, as an UPDATE of one row does. It waits as long as the session's
	// settings allow.
	Lock func(ctx context.Context, tx TTx, name string) error
	// LockWait returns, as one text that is only compared, the settings that limit how long statements of tx wait and
	// run.
	LockWait func(ctx context.Context, tx TTx) (string, error)
	// Wrote reports whether tx must write something when it commits, for example because it has a transaction ID.
	Wrote func(ctx context.Context, tx TTx) (bool, error)
	// Plant inserts a row with the key hash at and the business key k.
	Plant func(t *testing.T, at dedup.KeyHash, k dedup.Key)
	// RegisterSource begins a transaction that records a source of consumer, as RegisterSources does, and rolls it back
	// when t ends. commit commits it. waited reports whether another transaction waits for it.
	RegisterSource func(t *testing.T, consumer, source string) (commit func(), waited func() bool)
	// Connections counts the connections of a node that are in use.
	Connections func(t *testing.T, s dedup.Store[TTx]) int
	// Faulty returns a node whose first COMMIT suffers f. internal/test/wireproxy does that for PostgreSQL.
	Faulty func(t *testing.T, o Options, f Fault) dedup.Store[TTx]
	// NoSchema returns a node on a database without the store's tables, OldSchema one on tables of another version, and
	// NotDurable one whose settings lose commits. Each must open, and its Register must fail.
	NoSchema, OldSchema, NotDurable func(t *testing.T) dedup.Store[TTx]
	// NewerSchema returns a node on tables of a newer version that works with this program. Its Register must succeed.
	NewerSchema func(t *testing.T) dedup.Store[TTx]
}

// Options configure a node. The zero value of each field means the store's default.
type Options struct {
	Isolation string        // one of Harness.Isolations
	Wait      time.Duration // how long a claim waits for a transaction that holds its key
	Compact   bool          // do not store the business key
}

// Code is how a store classifies an error code of its database.
type Code struct {
	Retryable bool              // as dedup.Store says
	Ambiguous bool              // as driver.FaultClassifier says, if the store implements it
	Class     driver.FaultClass // as driver.FaultClassifier says, if the store implements it; "": not checked
	// as the answer to COMMIT, the code leaves it open whether the transaction was committed
	Unknown bool
}

// Misuse is something that a handler must not do with its transaction.
type Misuse[TTx any] struct {
	Name string
	// Do does it. The handler ignores the error.
	Do func(ctx context.Context, tx TTx) error
	// Ends says that it ends the transaction or tries to. InTx must then fail with ErrTxEnded. Otherwise InTx may fail
	// with any error, or succeed if everything is committed.
	Ends bool
	// Reported says why this store cannot keep a later effect from being committed without the claim. InTx must then
	// fail with ErrTxEnded. Empty: the store prevents that.
	Reported string
}

// Fault is what happens to a COMMIT between client and server.
type Fault int

const (
	CommitLost Fault = iota // the connection breaks before COMMIT reaches the server, which rolls back
	AnswerLost              // the server commits, and the connection breaks before its answer arrives
	CommitLate              // the connection breaks, and COMMIT reaches the server LateBy later
)

// LateBy is the delay of CommitLate.
const LateBy = 700 * time.Millisecond

func (f Fault) String() string {
	return [...]string{"COMMIT lost", "answer lost", "COMMIT late"}[f]
}

// TestStore runs the suite. Each case is a sub-test on its own database.
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
		archiveCases[TTx](),
		horizonCases[TTx](),
		windowCases[TTx](),
		sourceCases[TTx](),
		versionCases[TTx](),
		positionCases[TTx](),
		callCases[TTx](),
	)
	for name := range h.DoesNotApply {
		if !slices.ContainsFunc(all, func(c testCase[TTx]) bool { return c.name == name }) {
			t.Errorf("Harness.DoesNotApply names %q, which is no case of the suite", name)
		}
	}
	for _, c := range all {
		levels := c.levels(h)
		if len(levels) == 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if reason, ok := h.DoesNotApply[c.name]; ok {
				t.Logf("does not apply: %s", reason)
				return
			}
			for _, level := range levels {
				if level == "" {
					c.run(t, newEnv(t, h, ""))
					return
				}
				t.Run(level, func(t *testing.T) { c.run(t, newEnv(t, h, level)) })
			}
		})
	}
}

// levels returns the isolation levels of c. The empty one is the store's default, without a sub-test of its own.
func (c testCase[TTx]) levels(h Harness[TTx]) []string {
	levels := []string{""}
	if c.perIsolation && len(h.Isolations) > 0 {
		levels = slices.Clone(h.Isolations)
	}
	return slices.DeleteFunc(levels, func(level string) bool { return h.Select != nil && !h.Select(c.name, level) })
}

// testCase is one rule, which is its name.
type testCase[TTx any] struct {
	name         string
	perIsolation bool
	run          func(t *testing.T, e *env[TTx])
}
