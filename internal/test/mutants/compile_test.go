package main

import (
	"bufio"
	"bytes"
	"errors"
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

// Every mutation passes the type checker. make mutants would notice too, but only after an hour. The functions of the package's other
// files are checked without their bodies, which takes a third of the time.
func TestMutationsCompile(t *testing.T) {
	t.Chdir("../../..")
	folders := map[string]bool{}
	for _, m := range mutations {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		folders["./"+filepath.Dir(m.file)] = true
	}
	list := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{.Export}}\t{{join .GoFiles \"\t\"}}"}
	cmd := exec.CommandContext(t.Context(), "go", append(list, slices.Sorted(maps.Keys(folders))...)...)
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("RACE")) // the flags of run.sh: nothing is compiled twice
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, files := map[string]string{}, map[string][]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		exports[fields[0]] = fields[2]
		files[fields[1]] = fields[3:]
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	compiled := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	dir := t.TempDir()
	parsed := map[string]*ast.File{}
	for _, m := range mutations {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		if _, err := m.overlay(dir); err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		folder := filepath.Join(root, filepath.Dir(m.file))
		var pkg []*ast.File
		for _, name := range files[folder] {
			file := parsed[filepath.Join(folder, name)]
			if name == filepath.Base(m.file) {
				if file, err = parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution); err != nil {
					t.Errorf("%s: %v", m.name, err)
				}
			} else if file == nil {
				if file, err = parser.ParseFile(fset, filepath.Join(folder, name), nil, parser.SkipObjectResolution); err != nil {
					t.Fatal(err)
				}
				dropBodies(file)
				parsed[filepath.Join(folder, name)] = file
			}
			pkg = append(pkg, file)
		}
		check := types.Config{Importer: compiled, GoVersion: "go1.26", Error: func(err error) {
			if e := (types.Error{}); errors.As(err, &e) && e.Soft && !strings.HasPrefix(fset.Position(e.Pos).Filename, dir) {
				return // an import that only a body needs
			}
			t.Errorf("%s: %v", m.name, err)
		}}
		_, _ = check.Check(m.pkg, fset, pkg, nil)
	}
}

func dropBodies(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Type.TypeParams == nil && f.Name.Name != "init" && f.Name.Name != "main" {
			f.Body = nil
		}
	}
}
