package proof_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/proof"
)

// A run names its commit, and says when files differ from it. What publishes runs may differ.
func TestCommit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	if got := proof.Commit(); got != "unknown" {
		t.Errorf("without a repository: %q", got)
	}
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("a.sql", "1")
	write("below/b.go", "1")
	git("add", "-A")
	git("commit", "-q", "-m", "one")
	head := git("rev-parse", "HEAD")
	for _, test := range []struct{ name, file, want string }{
		{"a run", "internal/test/proof/runs/wire.json", head},
		{"the page", "docs/proof.md", head},
		{"a new file", "new.go", head + "-dirty"},
		{"a statement", "a.sql", head + "-dirty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			write(test.file, "2")
			t.Chdir("below")
			got := proof.Commit()
			t.Chdir("..")
			if got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			git("clean", "-fdq")
			git("checkout", "-q", ".")
		})
	}
}
