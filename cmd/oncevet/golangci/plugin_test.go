package golangci_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/golangci/plugin-module-register/register"

	_ "github.com/txonce/txonce/cmd/oncevet/golangci"
)

func TestPlugin(t *testing.T) {
	every := []string{"oncetx", "oncekey", "oncectx", "oncerows", "oncecall"}
	for _, test := range []struct {
		name     string
		settings map[string]any
		checks   []string
		on       string // oncecall's flag
		err      string
	}{
		{"defaults", nil, every, "false", ""},
		{"calls", map[string]any{"calls": true}, every, "true", ""},
		{"fewer", map[string]any{"disable": []string{"oncerows", "oncecall"}}, every[:3], "", ""},
		{"no such check", map[string]any{"disable": []string{"oncerow"}}, nil, "", `there is no check "oncerow"`},
		{"no such setting", map[string]any{"call": true}, nil, "", `unknown field "call"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			make, err := register.GetPlugin("oncevet")
			if err != nil {
				t.Fatal(err)
			}
			plugin, err := make(test.settings)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("%v, want an error with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			analyzers, err := plugin.BuildAnalyzers()
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, a := range analyzers {
				names = append(names, a.Name)
				if a.Name == "oncecall" && a.Flags.Lookup("on").Value.String() != test.on {
					t.Errorf("-oncecall.on is %v, want %s", a.Flags.Lookup("on").Value, test.on)
				}
			}
			if !slices.Equal(names, test.checks) {
				t.Errorf("checks %v, want %v", names, test.checks)
			}
			if mode := plugin.GetLoadMode(); mode != register.LoadModeTypesInfo {
				t.Errorf("load mode %q", mode)
			}
		})
	}
}
