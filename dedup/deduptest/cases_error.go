package deduptest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
)

// errorCases test whether errors are Retryable, and errors at start.
func errorCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "each error code is retryable or not", run: codes[TTx]},
		{name: "own errors are not retryable", run: ownErrors[TTx]},
		{name: "Register takes a name once per node", run: nameTaken[TTx]},
		{name: "of Registers at once one takes the name", run: nameRace[TTx]},
		{name: "Register refuses a missing schema and names the fix", run: noSchema[TTx]},
		{name: "Register refuses another version of the schema and names the fix", run: oldSchema[TTx]},
		{name: "Register refuses a database that forgets commits", run: notDurable[TTx]},
		{name: "a missing table is the database's fault", run: missingTable[TTx]},
	}
}

// PostgresCodes are the error codes of a Harness on PostgreSQL, by SQLSTATE; true: Retryable. An error about the data of a
// statement is the message's fault. An error that any message would meet is not.
func PostgresCodes() map[string]bool {
	return map[string]bool{
		"08000": true, "08003": true, "08006": true, "08P01": true, // connection
		"25006": true,                               // read-only: a standby, after a failover
		"40001": true, "40003": true, "40P01": true, // serialisation, completion unknown, deadlock
		"42501": true, "42601": true, "42703": true, "42804": true, "42883": true, "42P01": true, "42P02": true, // a bad deploy
		"53000": true, "53100": true, "53200": true, "53300": true, // resources
		"55P03": true,                               // lock not available
		"57014": true, "57P01": true, "57P02": true, // cancelled by the server, shut down, crashed
		"57P03": true, "57P05": true,
		"58000": true, "58030": true, // system, I/O
		"XX000": true, "XX001": true, "XX002": true, // internal, corruption

		"21000": false, "22000": false, "22001": false, "22003": false, "22007": false, "22012": false, "22P02": false, // data
		"23000": false, "23502": false, "23503": false, "23505": false, "23514": false, "23P01": false, // constraints
		"2F000": false, "38000": false, "39000": false, "44000": false, // routines, views
		"P0001": false, "P0002": false, "P0003": false, // RAISE
		"TX001": false, // a code of the application's own
	}
}

func codes[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Raise", e.Raise == nil)
	hook(t, "Codes", len(e.Codes) == 0)
	s, ctx := e.node(t), bounded(t)
	for _, code := range slices.Sorted(maps.Keys(e.Codes)) {
		want := e.Codes[code]
		r := record(code)
		var raised error
		err := s.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
			raised = e.Raise(ctx, tx, code)
			return fmt.Errorf("handler: %w", raised)
		})
		switch {
		case raised == nil:
			t.Errorf("%s: Raise returned nil", code)
			continue
		case err == nil:
			t.Errorf("%s: InTx returned nil", code)
			continue
		case !errors.Is(err, raised):
			t.Errorf("%s: InTx returned %v, which hides the handler's %v", code, err, raised)
		}
		if got := s.Retryable(err); got != want {
			t.Errorf("%s: Retryable(%v) = %v, want %v", code, err, got, want)
		}
		if errors.Is(err, dedup.ErrInFlight) {
			t.Errorf("%s: %v: taken for a busy key", code, err)
		}
		e.must(t, s, r, dedup.First)
	}
}

func ownErrors[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	for _, err := range []error{
		nil, errors.New("any"), dedup.ErrInFlight, dedup.ErrTxEnded, dedup.ErrNoKey, dedup.ErrBadKey, dedup.ErrFuture,
		dedup.ErrMismatch, dedup.ErrUnprovable, dedup.ErrKeyCollision, dedup.ErrNameTaken,
	} {
		if s.Retryable(err) {
			t.Errorf("Retryable(%v) is true", err)
		}
		if err != nil && s.Retryable(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("Retryable(wrapped %v) is true", err)
		}
	}
}

func register[TTx any](t *testing.T, s dedup.Store[TTx], name string, window time.Duration) error {
	t.Helper()
	reg, ok := s.(dedup.Registrar)
	hook(t, "dedup.Registrar", !ok)
	return reg.Register(bounded(t), name, window)
}

func nameTaken[TTx any](t *testing.T, e *env[TTx]) {
	a, b := e.node(t), e.node(t)
	for _, step := range []struct {
		what   string
		node   dedup.Store[TTx]
		name   string
		window time.Duration
		taken  bool
	}{
		{"first", a, "billing", 0, false},
		{"another name", a, "mail", 0, false},
		{"the same name on another node", b, "billing", 0, false},
		{"the same name again", a, "billing", 0, true},
		{"the same name, other window", a, "billing", 48 * time.Hour, true},
		{"names are exact", a, "Billing", 0, false},
		{"names are exact: trailing space", a, "billing ", 0, false},
	} {
		if err := register(t, step.node, step.name, step.window); errors.Is(err, dedup.ErrNameTaken) != step.taken || (err != nil) != step.taken {
			t.Errorf("%s: Register(%q) = %v, want ErrNameTaken: %v", step.what, step.name, err, step.taken)
		}
	}
	if err := register(t, a, "short", dedup.MinWindow-1); err == nil {
		t.Error("a window below MinWindow was registered")
	}
	if err := register(t, a, "", 0); err == nil {
		t.Error("an empty name was registered")
	}
	e.must(t, a, record("k"), dedup.First) // a claim registers the consumer, without taking its name
	if err := register(t, a, consumer, 0); err != nil {
		t.Errorf("Register after a claim: %v", err)
	}
}

func nameRace[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	reg, ok := s.(dedup.Registrar)
	hook(t, "dedup.Registrar", !ok)
	ctx := bounded(t)
	var took atomic.Int64
	e.together(t, 8, func(int) error {
		err := retry(ctx, s, func() error { return reg.Register(ctx, "billing", 0) })
		if err == nil {
			took.Add(1)
		} else if !errors.Is(err, dedup.ErrNameTaken) {
			return err
		}
		return nil
	})
	if took.Load() != 1 {
		t.Errorf("%d took one name", took.Load())
	}
}

func noSchema[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "NoSchema", e.NoSchema == nil)
	wantSchemaError(t, register(t, e.NoSchema(t), consumer, 0))
}

func oldSchema[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "OldSchema", e.OldSchema == nil)
	wantSchemaError(t, register(t, e.OldSchema(t), consumer, 0))
}

func wantSchemaError(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, dedup.ErrSchema) {
		t.Fatalf("Register = %v, want ErrSchema", err)
	}
	if text := strings.ToLower(err.Error()); !strings.Contains(text, "migrat") {
		t.Errorf("%q does not say how to migrate", err)
	}
}

func notDurable[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "NotDurable", e.NotDurable == nil)
	s := e.NotDurable(t)
	err := register(t, s, consumer, 0)
	if !errors.Is(err, dedup.ErrNotDurable) {
		t.Fatalf("Register = %v, want ErrNotDurable", err)
	}
	if s.Retryable(err) {
		t.Error("ErrNotDurable is retryable")
	}
	t.Log(err)
	refused, ok := s.(dedup.SourceRegistrar)
	hook(t, "dedup.SourceRegistrar", !ok)
	if err := refused.RegisterSources(bounded(t), consumer, []string{"sqs queue a"}); !errors.Is(err, dedup.ErrNotDurable) {
		t.Errorf("RegisterSources = %v, want ErrNotDurable", err)
	}
	other := e.node(t).(dedup.SourceRegistrar)
	// Behind a pooler the setting belongs to the role, so this node is refused too.
	if err := other.RegisterSources(bounded(t), consumer, []string{"sqs queue b"}); err != nil && !errors.Is(err, dedup.ErrNotDurable) {
		t.Errorf("a start that was refused has recorded its source: %v", err)
	}
}

func missingTable[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "NoSchema", e.NoSchema == nil)
	s, ctx := e.NoSchema(t), bounded(t)
	err := s.InTx(ctx, []dedup.Record{record("k")}, func(TTx, []dedup.Claim) error {
		t.Error("fn ran without a claim")
		return nil
	})
	if err == nil || !s.Retryable(err) {
		t.Errorf("claim without tables: %v; retryable %v, want true", err, s.Retryable(err))
	}
}
