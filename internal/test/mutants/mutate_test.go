package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is a package that the rows of these tests change.
const sample = `package sample

import "fmt"

const now = "now()"

type (
	store[T any] struct{ all []T }
	texts        struct{ Find, Sum string }
)

func (s *store[T]) Get(i int) (T, error) {
	if i < 0 {
		return *new(T), fmt.Errorf("no %d", i)
	}
	return s.all[i], nil
}

func statements() texts {
	q := func(s string) string { return s }
	find := ` + "`SELECT 1\nWHERE a = 1 AND b = 2`" + `
	return texts{Find: q(find + " AND c < " + now + " AND d = 4"), Sum: "SELECT 1 AND " + "b"}
}
`

func mutate(t *testing.T, r row) (string, error) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n", "pkg/sample.go": sample} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, text, err := r.mutated(root)
	return text, err
}

func TestMutations(t *testing.T) {
	for _, tt := range []struct {
		name string
		row  row
		want []string // texts of the mutated file, or of the error
	}{
		{
			name: "a method is wrapped, whether or not the row writes a pointer",
			row:  row{in: "pkg.(store).Get", body: "return s.getOriginal(i + 1)"},
			want: []string{
				"func (s *store[T]) getOriginal(i int)",
				"func (s *store[T]) Get(i int) (T, error) {\nreturn s.getOriginal(i + 1)\n}",
			},
		},
		{
			name: "an import that the file does not have is added",
			row:  row{in: "pkg.(*store).Get", body: "return s.all[0], io.EOF", imports: "io"},
			want: []string{`package sample; import "io"`},
		},
		{
			name: "an import that the file has is not added again",
			row:  row{in: "pkg.(*store).Get", body: "return s.all[0], fmt.Errorf(``)", imports: "fmt"},
			want: []string{"package sample\n"},
		},
		{
			name: "text is cut from a variable",
			row:  row{sql: "pkg.statements.find", cut: " AND b = 2"},
			want: []string{`find := "SELECT 1\nWHERE a = 1"` + "\n"},
		},
		{
			name: "text that spans operands is replaced",
			row:  row{sql: "pkg.statements.Find", cut: "c < {now} AND", put: "true AND"},
			want: []string{`Find: q(find + " AND " + "true AND" + " d = 4")`},
		},
		{
			name: "text that spans literals is cut, and all of an expression may be",
			row:  row{sql: "pkg.statements.Sum", cut: "SELECT 1 AND b"},
			want: []string{`Sum: ""`},
		},
		{
			name: "text is cut wherever it occurs",
			row:  row{sql: "pkg.statements", cut: " AND "},
			want: []string{`"SELECT 1\nWHERE a = 1" + "b = 2"`, `find + "c < " + now + "d = 4"`, `"SELECT 1" + "b"`},
		},
		{
			name: "text is cut from a constant",
			row:  row{sql: "pkg.now", cut: "now()", put: "later()"},
			want: []string{`const now = "later()"`},
		},
		{
			name: "a function that is gone",
			row:  row{promise: "It lasts.", in: "pkg.(*store).Fetch", body: "return nil"},
			want: []string{
				`the promise "It lasts.": pkg has no function (*store).Fetch`, "in and body",
				`-run "It lasts."`,
			},
		},
		{
			name: "a folder that is gone", row: row{in: "other/pkg.Get", body: "return nil"},
			want: []string{"the folder other/pkg has no Go files"},
		},
		{
			name: "a field that is gone", row: row{sql: "pkg.statements.Max", cut: "SELECT"},
			want: []string{"statements in pkg has nothing named Max", "sql, cut and put"},
		},
		{
			name: "text that is gone", row: row{sql: "pkg.statements.Sum", cut: "c < "},
			want: []string{`no string of pkg.statements.Sum contains "c < "`},
		},
		{
			name: "a cut through an operand", row: row{sql: "pkg.statements.Find", cut: "c < {no"},
			want: []string{"the cut ends within {now}"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := mutate(t, tt.row)
			if err != nil {
				text = err.Error()
			}
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in:\n%s", want, text)
				}
			}
			if want := strings.HasSuffix(tt.name, "gone") || strings.HasPrefix(tt.name, "a cut"); want != (err != nil) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestTests(t *testing.T) {
	r := row{fails: "TestStore/postgres15/what_(if)_it's_so in adapters/pgxstore"}
	if name, folder := r.test(); name != "TestStore/postgres15/what_(if)_it's_so" || folder != "adapters/pgxstore" {
		t.Error(name, folder)
	}
	if got, want := exactly("TestStore/what_(if)"), `^TestStore$/^what_\(if\)$`; got != want {
		t.Error(got)
	}
}
