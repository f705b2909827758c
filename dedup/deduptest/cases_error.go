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
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/names"
	"github.com/txonce/txonce/observe"
)

// errorCases test whether errors are Retryable, and errors at start.
func errorCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "each error code is retryable or not", run: codes[TTx]},
		{name: "each error code of COMMIT tells whether the outcome is known", run: commitCodes[TTx]},
		{name: "own errors are not retryable", run: ownErrors[TTx]},
		{name: "Register takes a name once per node", run: nameTaken[TTx]},
		{name: "a name that is taken says what has it", run: nameHeld[TTx]},
		{name: "of Registers at once one takes the name", run: nameRace[TTx]},
		{name: "Register refuses a missing schema and names the fix", run: noSchema[TTx]},
		{name: "Register refuses another version of the schema and names the fix", run: oldSchema[TTx]},
		{name: "Register refuses a database that forgets commits", run: notDurable[TTx]},
		{name: "a missing table is the database's fault", run: missingTable[TTx]},
	}
}

func codes[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "Raise", e.Raise == nil)
	hook(t, "Codes", len(e.Codes) == 0)
	s, ctx := e.node(t), bounded(t)
	for _, code := range slices.Sorted(maps.Keys(e.Codes)) {
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
		classified(t, s, code, err, e.Codes[code])
		e.must(t, s, r, dedup.First)
	}
}

// commitCodes answers COMMIT with each code. If the code leaves the outcome open, the error must say so. Otherwise it
// must be classified as the error of a statement.
func commitCodes[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "RaiseAtCommit", e.RaiseAtCommit == nil)
	hook(t, "Codes", len(e.Codes) == 0)
	s, ctx := e.node(t), bounded(t)
	for _, code := range slices.Sorted(maps.Keys(e.Codes)) {
		r, want := record(code), e.Codes[code]
		done := false
		err := s.InTx(ctx, []dedup.Record{r}, func(tx TTx, _ []dedup.Claim) error {
			err := e.RaiseAtCommit(ctx, tx, code)
			done = err == nil
			return err
		})
		if err == nil || !done {
			t.Errorf("%s: InTx = %v; RaiseAtCommit returned nil: %v", code, err, done)
			continue
		}
		if c, ok := s.(driver.FaultClassifier); ok && (c.Result(err) == observe.CommitUnknown) != want.Unknown {
			t.Errorf("%s: the result of %v is %q; want an unknown outcome: %v", code, err, c.Result(err), want.Unknown)
		}
		if want.Unknown {
			want = Code{Retryable: true, Class: want.Class}
		}
		classified(t, s, code, err, want)
		e.must(t, s, r, dedup.First)
	}
}

func classified[TTx any](t *testing.T, s dedup.Store[TTx], code string, err error, want Code) {
	t.Helper()
	if got := s.Retryable(err); got != want.Retryable {
		t.Errorf("%s: Retryable(%v) = %v, want %v", code, err, got, want.Retryable)
	}
	if c, ok := s.(driver.FaultClassifier); ok && c.Ambiguous(err) != want.Ambiguous {
		t.Errorf("%s: Ambiguous(%v) = %v, want %v", code, err, c.Ambiguous(err), want.Ambiguous)
	}
	if c, ok := s.(driver.FaultClassifier); ok && want.Class != "" && c.FaultClass(err) != want.Class {
		t.Errorf("%s: the class of %v is %q, want %q", code, err, c.FaultClass(err), want.Class)
	}
	if errors.Is(err, dedup.ErrInFlight) {
		t.Errorf("%s: %v: taken for a busy key", code, err)
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
	reg, ok := s.(driver.Registrar)
	hook(t, "driver.Registrar", !ok)
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
		if err := register(t, step.node, step.name, step.window); errors.Is(err, dedup.ErrNameTaken) != step.taken ||
			(err != nil) != step.taken {
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

// nameHeld checks that a refusal says what has the name: a call of Register, which nothing closes, or a Consumer.
func nameHeld[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	registrar, ok := s.(driver.Registrar)
	hook(t, "driver.Registrar", !ok)
	const call, consumer = "a call of Register has registered", "a Consumer has registered"
	byConsumer := func(name string) error { return registrar.Register(names.ByConsumer(bounded(t)), name, 0) }
	for _, step := range []struct {
		what string
		err  error
		want string // empty: no error
	}{
		{"a call of Register", register(t, s, "billing", 0), ""},
		{"a Consumer that is made after it", registrar.NameFree("billing"), call},
		{"a Consumer that starts after it", byConsumer("billing"), call},
		{"a Consumer", byConsumer("mail"), ""},
		{"a Consumer that is made beside it, to replace it", registrar.NameFree("mail"), ""},
		{"a Consumer that starts beside it", byConsumer("mail"), consumer},
		{"a call of Register beside it", register(t, s, "mail", 0), consumer},
		{"a name that is free", registrar.NameFree("other"), ""},
	} {
		if err := step.err; (err == nil) != (step.want == "") || err != nil && (!errors.Is(err, dedup.ErrNameTaken) ||
			!strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s: %v, want %q", step.what, err, step.want)
		}
	}
	registrar.Release("billing")
	registrar.Release("mail")
	if err := errors.Join(registrar.NameFree("billing"), byConsumer("billing"), register(t, s, "mail", 0),
		registrar.NameFree("billing")); err != nil {
		t.Errorf("after Release: %v", err)
	}
}

func nameRace[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	reg, ok := s.(driver.Registrar)
	hook(t, "driver.Registrar", !ok)
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
	refused, ok := s.(driver.Registrar)
	hook(t, "driver.Registrar", !ok)
	if err := refused.RegisterSources(bounded(t), consumer, []string{"sqs queue a"}); !errors.Is(err,
		dedup.ErrNotDurable) {
		t.Errorf("RegisterSources = %v, want ErrNotDurable", err)
	}
	other := e.node(t).(driver.Registrar)
	// Behind a pooler the setting belongs to the role, so this node is refused too.
	if err := other.RegisterSources(bounded(t), consumer, []string{"sqs queue b"}); err != nil &&
		!errors.Is(err, dedup.ErrNotDurable) {
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
