package features_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/features"
)

var write = flag.Bool("write", false, "write the table into docs/concepts.md")

const begin, end = "<!-- features: go test ./internal/test/features -write -->\n", "<!-- end of features -->"

// The table of docs/concepts.md shows these features.
func TestTheTableOfTheBrokers(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "concepts.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("docs/concepts.md has no table between %q and %q", begin, end)
	}
	want := before + begin + table() + end + after
	if want == string(text) {
		return
	}
	if !*write {
		t.Fatal("docs/concepts.md has another table than internal/test/features; run: go test ./internal/test/features -write")
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| | order within a key | delayed retry | attempts counted | batches | fenced |\n|---|---|---|---|---|---|\n")
	yes := func(has bool) string {
		if has {
			return "yes"
		}
		return "–"
	}
	for _, a := range features.Adapters {
		f := a.Features
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", a.Name, yes(f.Ordered), yes(f.Delay),
			yes(f.CountsAttempts), yes(f.Batch), yes(f.Fenced))
	}
	return b.String()
}
