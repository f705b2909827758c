package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every body of a row passes the type checker. make mutants would notice too, but only after a long time. All rows of a
// package are checked at once, each as a function of another name, and without the bodies of other functions. A cut
// needs no check: it replaces one string by another.
func TestRowsCompile(t *testing.T) {
	byFolder := map[string][]row{}
	for _, r := range allRows() {
		if r.in != "" {
			byFolder[r.target().folder] = append(byFolder[r.target().folder], r)
		}
	}
	exports := exported(t, slices.Collect(maps.Keys(byFolder)))
	fset := token.NewFileSet()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	compiled := importer.ForCompiler(fset, "gc", open)
	for folder, rows := range byFolder {
		c := check{fset: fset, folder: folder, texts: map[string]string{}}
		for _, r := range rows {
			c.add(t, r)
		}
		c.run(t, compiled)
	}
}

// exported returns the files with the types of all packages that the folders import.
func exported(t *testing.T, folders []string) map[string]string {
	t.Helper()
	byModule := map[string][]string{}
	for _, folder := range folders {
		module, pkg, err := moduleOf(root(t), folder)
		if err != nil {
			t.Fatal(err)
		}
		byModule[module] = append(byModule[module], pkg)
	}
	exports := map[string]string{}
	for module, pkgs := range byModule {
		list := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
		cmd := exec.CommandContext(t.Context(), "go", append(list, pkgs...)...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("RACE")) // the flags of run.sh: nothing is compiled twice
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
			path, export, _ := strings.Cut(lines.Text(), "\t")
			exports[path] = export
		}
	}
	return exports
}

// check is the type check of a package with the functions of its rows.
type check struct {
	fset   *token.FileSet
	folder string
	texts  map[string]string // of files, by path
	rows   []row
}

// add appends the row's function to its file, and the original under the name by which the body may call it.
func (c *check) add(t *testing.T, r row) {
	t.Helper()
	f, err := r.find(root(t))
	if err != nil {
		return // TestRowsFindWhatTheyName says so
	}
	text, known := c.texts[f.path]
	if !known {
		text = string(f.src)
	}
	if !strings.Contains(text, `import "`+r.imports+`"`) {
		text = r.importing(text, f)
	}
	if original := r.generated(f, originalName(f.fn.Name.Name), `panic("")`); !strings.Contains(text, original) {
		text += "\n" + original
	}
	c.texts[f.path] = text + "\n" + r.generated(f, fmt.Sprint("mutant", len(c.rows)), r.body)
	c.rows = append(c.rows, r)
}

func (c *check) run(t *testing.T, compiled types.Importer) {
	t.Helper()
	paths, err := sources(filepath.Join(root(t), c.folder))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	mutants := map[*ast.FuncDecl]row{}
	for _, path := range paths {
		var text any
		if changed, ok := c.texts[path]; ok {
			text = changed
		}
		file, err := parser.ParseFile(c.fset, path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			var n int
			if _, err := fmt.Sscanf(fn.Name.Name, "mutant%d", &n); err == nil {
				mutants[fn] = c.rows[n]
			} else if fn.Body != nil {
				panics := &ast.CallExpr{Fun: ast.NewIdent("panic"), Args: []ast.Expr{ast.NewIdent("nil")}}
				fn.Body.List = []ast.Stmt{&ast.ExprStmt{X: panics}}
			}
		}
		files = append(files, file)
	}
	conf := types.Config{Importer: compiled, GoVersion: "go1.26", Error: func(err error) {
		e := types.Error{}
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", c.folder, err)
			return
		}
		for fn, r := range mutants {
			if fn.Pos() <= e.Pos && e.Pos <= fn.End() {
				t.Error(r.broken("its body does not compile: %s", e.Msg))
				return
			}
		}
		if !e.Soft { // soft: an import that only bodies need
			t.Errorf("%s: %v", c.folder, err)
		}
	}}
	_, _ = conf.Check(c.folder, c.fset, files, nil)
}
