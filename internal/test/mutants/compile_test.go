package main

import (
	"bufio"
	"bytes"
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

// Every mutation passes the type checker. make mutants would notice too, but only after an hour.
func TestMutationsCompile(t *testing.T) {
	t.Chdir("../../..")
	folders := map[string]bool{}
	for _, m := range mutations {
		if filepath.Ext(m.file) != ".go" {
			continue
		}
		folders["./"+filepath.Dir(m.file)] = true
	}
	list := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Dir}}\t{{.Export}}\t{{join .GoFiles \"\t\"}}"},
		slices.Sorted(maps.Keys(folders))...)
	out, err := exec.CommandContext(t.Context(), "go", list...).Output()
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
				parsed[filepath.Join(folder, name)] = file
			}
			pkg = append(pkg, file)
		}
		check := types.Config{Importer: compiled, GoVersion: "go1.26"}
		if _, err := check.Check(m.pkg, fset, pkg, nil); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
