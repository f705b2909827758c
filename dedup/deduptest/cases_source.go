package deduptest

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// sourceCases are about the queues and topics that a consumer's messages come from.
func sourceCases[TTx any]() []testCase[TTx] {
	return []testCase[TTx]{
		{name: "one name for two sources is refused", run: sourcesCompared[TTx]},
		{name: "of different sources at once one is accepted", run: sourcesRace[TTx]},
		{name: "a source that another process is registering is waited for", run: sourceWait[TTx]},
		{name: "Register accepts a newer schema that works with this program", run: newerSchema[TTx]},
	}
}

func sourceRegistrar[TTx any](t *testing.T, s dedup.Store[TTx]) driver.Registrar {
	t.Helper()
	reg, ok := s.(driver.Registrar)
	hook(t, "driver.Registrar", !ok)
	return reg
}

func sourcesCompared[TTx any](t *testing.T, e *env[TTx]) {
	const one, two, three = "sqs queue orders", "sqs queue refunds", "kafka group billing, topic orders"
	a, b := sourceRegistrar(t, e.node(t)), sourceRegistrar(t, e.node(t))
	for _, step := range []struct {
		what     string
		node     driver.Registrar
		consumer string
		sources  []string
		refused  bool
	}{
		{"the first", a, "billing", []string{one}, false},
		{"the same again", a, "billing", []string{one}, false},
		{"the same on another node", b, "billing", []string{one}, false},
		{"another one", b, "billing", []string{two}, true},
		{"another one, twice named", b, "billing", []string{two, two}, true},
		{"what was refused is not recorded", b, "billing", []string{two}, true},
		{"another one of another consumer", b, "mail", []string{two}, false},
		{"names are exact", b, "Billing", []string{two}, false},
		{"one more beside a known one", b, "billing", []string{three, one}, false},
		{"the added one alone", a, "billing", []string{three}, false},
		{"none", a, "billing", nil, false},
	} {
		err := step.node.RegisterSources(bounded(t), step.consumer, step.sources)
		if errors.Is(err, dedup.ErrNameTaken) != step.refused || (err != nil) != step.refused {
			t.Errorf("%s: RegisterSources(%q, %q) = %v, want ErrNameTaken: %v", step.what, step.consumer, step.sources,
				err, step.refused)
		}
		if err != nil && !(strings.Contains(err.Error(), one) && strings.Contains(err.Error(), two) &&
			strings.Contains(err.Error(), "billing")) {
			t.Errorf("%s: %q does not name the consumer and both sources", step.what, err)
		}
	}
	for what, sources := range map[string][]string{
		"an empty source":  {one, ""},
		"a source of 1 MB": {one, strings.Repeat("x", 1<<20)},
	} {
		if err := a.RegisterSources(bounded(t), "billing", sources); err == nil {
			t.Errorf("%s was registered", what)
		}
	}
	if err := a.RegisterSources(bounded(t), "", []string{one}); err == nil {
		t.Error("an empty name was registered")
	}
}

func sourcesRace[TTx any](t *testing.T, e *env[TTx]) {
	ctx := bounded(t)
	var accepted atomic.Int64
	nodes := []dedup.Store[TTx]{e.node(t), e.node(t)}
	e.together(t, 8, func(i int) error {
		s := nodes[i%2]
		reg := sourceRegistrar(t, s)
		err := retry(ctx, s, func() error {
			return reg.RegisterSources(ctx, "billing", []string{"sqs queue " + string(rune('a'+i))})
		})
		if err == nil {
			accepted.Add(1)
		} else if !errors.Is(err, dedup.ErrNameTaken) {
			return err
		}
		return nil
	})
	if accepted.Load() != 1 {
		t.Errorf("%d different sources were accepted under one name", accepted.Load())
	}
}

func sourceWait[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "RegisterSource", e.RegisterSource == nil)
	ctx, reg := bounded(t), sourceRegistrar(t, e.node(t))
	commit, waited := e.RegisterSource(t, "billing", "sqs queue a")
	done := make(chan error, 1)
	go func() { done <- reg.RegisterSources(ctx, "billing", []string{"sqs queue b"}) }()
	for !waited() {
		select {
		case err := <-done:
			t.Fatalf("RegisterSources = %v while another process registers another source; want that it waits", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	commit()
	if err := <-done; !errors.Is(err, dedup.ErrNameTaken) {
		t.Errorf("RegisterSources = %v after another process has registered another source; want ErrNameTaken", err)
	}
}

func newerSchema[TTx any](t *testing.T, e *env[TTx]) {
	hook(t, "NewerSchema", e.NewerSchema == nil)
	if err := register(t, e.NewerSchema(t), consumer, 0); err != nil {
		t.Errorf("Register = %v: the old program of a rolling deployment must start on the new schema", err)
	}
}
