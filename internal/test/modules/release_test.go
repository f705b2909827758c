package modules_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// published are the modules that others import, besides the root.
var published = []string{
	"adapters/awssqs", "adapters/cli", "adapters/kafka", "adapters/pgxstore", "adapters/rabbitmq",
	"adapters/sqlstore/gormstore",
	"adapters/telemetry", "adapters/watermilltx",
}

// A root module of the next release does not compile with the adapters of this one.
func TestReleasesDoNotMix(t *testing.T) {
	top, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(t.TempDir(), "release.go")
	if err := os.WriteFile(next, []byte("package release\n\nconst V9_9 = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(top, "internal/release/release.go"): next}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", overlay}
	for _, dir := range published {
		args = append(args, "./"+dir)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("adapters compile with a root module of another release")
	}
	for _, dir := range published {
		if !strings.Contains(string(out), dir+"/release.go") {
			t.Errorf("%s compiles with a root module of another release:\n%s", dir, out)
		}
	}
}

// A published module requires its siblings at one version. go.work hides a version that nobody can download.
func TestSiblingsHaveOneVersion(t *testing.T) {
	top, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string][]string{} // the modules that require one, by version
	for _, dir := range append([]string{".", "cmd/txonce", "internal/test/brokers"}, published...) {
		text, err := os.ReadFile(filepath.Join(top, dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^\s*(?:require )?github\.com/txonce/txonce\S* (v\S+)`).FindAllSubmatch(text, -1) {
			versions[string(line[1])] = append(versions[string(line[1])], dir)
		}
	}
	if len(versions) != 1 {
		t.Errorf("the siblings have several versions, or none: %v", versions)
	}
}
