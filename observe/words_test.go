package observe_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/txonce/txonce/observe"
)

// A word that is missing in its list has no counter until it first occurs, and increase() of a counter that is born at
// 1 is 0.
func TestListsAreComplete(t *testing.T) {
	listed := map[string]bool{}
	for _, w := range observe.Outcomes() {
		listed[string(w)] = true
	}
	for _, w := range observe.Causes() {
		listed[string(w)] = true
	}
	for _, w := range observe.Results() {
		listed[string(w)] = true
	}
	file, err := parser.ParseFile(token.NewFileSet(), "words.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := 0
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		word, err := strconv.Unquote(lit.Value)
		if err != nil || !listed[word] {
			t.Errorf("%s is in no list (%v)", lit.Value, err)
		}
		words++
		return true
	})
	if words != len(listed) {
		t.Errorf("%d words in the source, %d different ones in the lists", words, len(listed))
	}
}
