package docs_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/proof"
)

// docs/proof.md and README's sentence say what the published runs have counted, and each of these runs is good.
func TestProof(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "internal/test/proof/runs/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := proof.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) == 0 {
		t.Fatal("no run is published")
	}
	for _, r := range runs {
		if err := r.Check(); err != nil {
			t.Error(err)
		}
	}
	if names := proof.Unexplained(runs); len(names) > 0 {
		t.Errorf("docs/proof.md does not say what %q are: add them to internal/test/proof/words.go", names)
	}
	if read(t, filepath.Join(root, "docs/proof.md")) != proof.Page(runs) {
		t.Error("docs/proof.md is out of date: go run ./internal/test/proof/page > docs/proof.md")
	}
	if want := proof.Sentence(runs); !strings.Contains(strings.Join(strings.Fields(read(t, filepath.Join(root, "README.md"))), " "), want) {
		t.Errorf("README.md lacks the sentence of go run ./internal/test/proof/page -sentence: %s", want)
	}
}
