package main

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// row is a promise, a way to break it, and the test that notices. It breaks either a function (in, body) or a statement
// of SQL (sql, cut, put).
//
// Functions are named by folder, receiver and name: "consumer.(*Consumer).Process", "dedup.FingerprintOf". Whether the
// receiver is a pointer does not matter. The function is renamed, Process to processOriginal, and one with the row's
// body takes its place. The body sees the original's parameters and imports, and may call the original.
//
// SQL is named likewise, optionally with the field, constant or variable that holds it:
// "internal/dialect.NewPostgres.Open". The text cut is replaced by put wherever it occurs in string literals of that
// function, field or variable. Literals that are joined by + count as one text, in which other operands are written in
// braces: "SELECT {now}".
type row struct {
	promise string // a sentence for docs/guarantees.md
	in      string
	body    string
	sql     string
	cut     string
	put     string
	fails   string // "TestStore/postgres15/first_wins in adapters/pgxstore"
	imports string // a package that body needs and the function's file does not import

	// also are further changes, with in and body: what else keeps the promise goes too.
	also []row
	// sim, unless it is 0, says that the simulation must fail within so many cases: about five times the mean of five
	// seeds, see -sim and -seeds.
	sim  int
	seed int // of the simulation; 0 means 1
	// rule, unless it is empty, is a pattern that the first line of the simulation's failure must match, so that another
	// rule, or a case that does not come to rest, does not count.
	rule string
}

// These are the tests of rows that only a simulation must notice.
const (
	simulated          = "TestSimulation in consumer/consumertest"
	simulatedPositions = "TestPositionsInASimulation in adapters/kafka"
)

// simulates reports whether the row's test is a simulation.
func (r row) simulates() bool { return r.fails == simulated || r.fails == simulatedPositions }

// test returns the name of the test that must fail, and its folder.
func (r row) test() (name, folder string) {
	name, folder, _ = strings.Cut(r.fails, " in ")
	return name, folder
}

// name returns in or sql.
func (r row) name() string { return r.in + r.sql }

// target is what a row's name means: the folder, the receiver's type, the function or declaration, and what is in it.
type target struct{ folder, receiver, decl, within string }

func (r row) target() target {
	slash := strings.LastIndex(r.name(), "/") + 1
	last, rest, _ := strings.Cut(r.name()[slash:], ".")
	t := target{folder: r.name()[:slash] + last}
	if strings.HasPrefix(rest, "(") {
		t.receiver, rest, _ = strings.Cut(strings.TrimLeft(rest, "(*"), ").")
	}
	t.decl, t.within, _ = strings.Cut(rest, ".")
	return t
}

// found is the declaration that a row names.
type found struct {
	path string // of its file
	src  []byte
	fset *token.FileSet
	file *ast.File
	fn   *ast.FuncDecl // of a row with a body
	node ast.Node      // of a row with SQL
}

func (f *found) offset(p token.Pos) int { return f.fset.Position(p).Offset }

// text is the source between two positions.
func (f *found) text(from, to token.Pos) string { return string(f.src[f.offset(from):f.offset(to)]) }

// find finds what the row names. root is the checkout.
func (r row) find(root string) (*found, error) { return r.findIn(root, nil) }

// findIn is find where the files of changed have other texts, by their paths.
func (r row) findIn(root string, changed map[string]string) (*found, error) {
	t := r.target()
	paths, err := sources(filepath.Join(root, t.folder))
	if err != nil {
		return nil, r.broken("the folder %s has no Go files (%v)", t.folder, err)
	}
	for _, path := range paths {
		f := &found{path: path, fset: token.NewFileSet()}
		if text, is := changed[path]; is {
			f.src = []byte(text)
		} else if f.src, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		f.file, err = parser.ParseFile(f.fset, path, f.src, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range f.file.Decls {
			if f.fn, f.node = t.declares(decl); f.node != nil {
				return r.narrow(f, t)
			}
		}
	}
	what := "function or declaration"
	if r.in != "" {
		what = "function"
	}
	return nil, r.broken("%s has no %s %s", t.folder, what, strings.TrimPrefix(r.name(), t.folder+"."))
}

// narrow looks for the field, constant or variable within the declaration, if the row names one.
func (r row) narrow(f *found, t target) (*found, error) {
	if r.in != "" && f.fn == nil {
		return nil, r.broken("%s is no function", r.in)
	}
	if t.within == "" {
		return f, nil
	}
	decl := f.node
	f.node = nil
	ast.Inspect(decl, func(n ast.Node) bool {
		if f.node == nil && declaresWithin(n, t.within) {
			f.node = n
		}
		return f.node == nil
	})
	if f.node == nil {
		return nil, r.broken("%s in %s has nothing named %s", t.decl, t.folder, t.within)
	}
	return f, nil
}

// declares returns the function or value that decl declares if it is the row's.
func (t target) declares(decl ast.Decl) (fn *ast.FuncDecl, node ast.Node) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.Name == t.decl && receiverOf(d) == t.receiver && d.Body != nil {
			return d, d
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && t.receiver == "" && named(v.Names, t.decl) {
				return nil, v
			}
		}
	}
	return nil, nil
}

// declaresWithin reports whether n is a field of a composite literal, an assignment or a declaration of that name.
func declaresWithin(n ast.Node, name string) bool {
	is := func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.Ident:
			return e.Name == name
		case *ast.SelectorExpr:
			return e.Sel.Name == name
		}
		return false
	}
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		return is(n.Key)
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Lhs, is)
	case *ast.ValueSpec:
		return named(n.Names, name)
	}
	return false
}

func named(idents []*ast.Ident, name string) bool {
	return slices.ContainsFunc(idents, func(id *ast.Ident) bool { return id.Name == name })
}

// receiverOf returns the name of a method's type, without * and type parameters, or "".
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// sources returns the paths of the Go files of a folder that are compiled here, without tests.
func sources(folder string) (paths []string, err error) {
	pkg, err := build.Default.ImportDir(folder, 0)
	if err != nil {
		return nil, err
	}
	for _, name := range pkg.GoFiles {
		paths = append(paths, filepath.Join(folder, name))
	}
	return paths, nil
}

// broken is the error of a row that does not fit the code any more. It says how to mend the row.
func (r row) broken(format string, args ...any) error {
	field := "in and body"
	if r.sql != "" {
		field = "sql, cut and put"
	}
	return fmt.Errorf("the promise %q: %s.\n\tMend its row in internal/test/mutants/rows_*.go: "+
		"say in %s what keeps the promise now, then see the test fail with\n\tgo run ./internal/test/mutants -run %q",
		r.promise, fmt.Sprintf(format, args...), field, r.promise)
}
