package names_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/names"
)

func TestNames(t *testing.T) {
	var n names.Names
	call, consumer := t.Context(), names.ByConsumer(t.Context())
	for _, step := range []struct {
		what string
		err  error
		want string // empty: no error
	}{
		{"first", n.Take(consumer, "billing"), ""},
		{"a second Consumer", n.Take(consumer, "billing"), "close that Consumer"},
		{"a call beside a Consumer", n.Take(call, "billing"), "a Consumer has registered"},
		{"a Consumer may be closed before the next one starts", n.NameFree("billing"), ""},
		{"a call", n.Take(call, "api"), ""},
		{"a second call", n.Take(call, "api"), "an earlier call of Register"},
		{"a Consumer beside a call", n.Take(consumer, "api"), "remove it"},
		{"a Consumer that is made beside a call", n.NameFree("api"), "remove it"},
		{"a name that is free", n.NameFree("other"), ""},
	} {
		if got := step.err; (got == nil) != (step.want == "") || got != nil && (!errors.Is(got, dedup.ErrNameTaken) ||
			!strings.Contains(got.Error(), step.want)) {
			t.Errorf("%s: %v, want %q", step.what, got, step.want)
		}
	}
	for _, name := range []string{"billing", "api"} {
		n.Free(name)
		if err := errors.Join(n.NameFree(name), n.Take(consumer, name)); err != nil {
			t.Errorf("after Free: %v", err)
		}
	}
}
