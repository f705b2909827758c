package oncecheck_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/txonce/txonce/cmd/oncevet/oncecheck"
)

// The handlers in testdata/handlers/wrong have a comment "// want" for each mistake, and those in right have none.
// *.golden is what the suggested fixes make of a file. The handlers use the real pgx, gorm, bun and txonce: the
// versions that this repository's workspace uses.
func TestHandlers(t *testing.T) {
	dir := workspace(t)
	analysistest.RunWithSuggestedFixes(t, dir, all(t), "./wrong", "./right", "./shop", "./queries", "./kit")
}

// all returns an analyzer that reports what all checks report, so that the handlers are loaded once.
func all(t *testing.T) *analysis.Analyzer {
	t.Helper()
	checks := oncecheck.Analyzers()
	for _, check := range checks {
		if on := check.Flags.Lookup("on"); on != nil {
			if err := on.Value.Set("true"); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &analysis.Analyzer{
		Name: "all", Doc: "all checks", Requires: checks[0].Requires,
		Run: func(pass *analysis.Pass) (any, error) {
			for _, check := range checks {
				if _, err := check.Run(pass); err != nil {
					return nil, err
				}
			}
			return nil, nil
		},
	}
}

// workspace copies the handlers to a workspace that has the modules of this repository's own.
func workspace(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/handlers")); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOWORK").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == "off" {
		t.Fatal("the handlers need the workspace of this repository, which has txonce's modules: unset GOWORK")
	}
	work := read(t, file)
	work = regexp.MustCompile(`(?m)^\t\.(/|$)`).ReplaceAllString(work, "\t"+filepath.Dir(file)+"$1")
	work = strings.Replace(work, "use (", "use (\n\t.\n\t./grpc", 1)
	write(t, filepath.Join(dir, "go.work"), work)
	write(t, filepath.Join(dir, "go.work.sum"), read(t, file+".sum"))
	write(t, filepath.Join(dir, "go.mod"), "module handlers\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "grpc", "go.mod"), "module google.golang.org/grpc\n\ngo 1.26.0\n")
	return dir
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
