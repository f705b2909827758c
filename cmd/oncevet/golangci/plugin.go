// Package golangci makes oncevet's checks a plugin of golangci-lint, in its module plugin system. docs/oncevet.md has
// the files .custom-gcl.yml and .golangci.yml.
package golangci

import (
	"fmt"
	"slices"

	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/txonce/txonce/cmd/oncevet/oncecheck"
)

func init() { register.Plugin("oncevet", New) }

// Settings are the settings of the plugin in .golangci.yml.
type Settings struct {
	// Disable has the names of checks that report nothing, such as oncerows.
	Disable []string `json:"disable"`

	// Calls turns oncecall on.
	Calls bool `json:"calls"`
}

// New returns the plugin. golangci-lint calls it.
func New(settings any) (register.LinterPlugin, error) {
	s, err := register.DecodeSettings[Settings](settings)
	if err != nil {
		return nil, fmt.Errorf("oncevet: settings: %w", err)
	}
	var p plugin
	for _, a := range oncecheck.Analyzers() {
		if i := slices.Index(s.Disable, a.Name); i >= 0 {
			s.Disable = slices.Delete(s.Disable, i, i+1)
			continue
		}
		if a.Name == oncecheck.CheckCall && s.Calls {
			if err := a.Flags.Set("on", "true"); err != nil {
				return nil, fmt.Errorf("oncevet: settings: calls: %w", err)
			}
		}
		p = append(p, a)
	}
	if len(s.Disable) > 0 {
		return nil, fmt.Errorf("oncevet: settings: disable: there is no check %q", s.Disable[0])
	}
	return p, nil
}

type plugin []*analysis.Analyzer

func (p plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) { return p, nil }

func (p plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
