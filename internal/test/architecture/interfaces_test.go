package architecture_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mostMethods is how many methods an interface may have, with those of the interfaces that it embeds.
const mostMethods = 10

// large are interfaces that may have more, by package and name, each with the reason.
var large = map[string]string{
	"adapters/rabbitmq.Channel": "the methods of *amqp091.Channel that this package calls, with their signatures, so that tests can put a fake in its place",
}

// An interface that asks for everything has one implementation, and no fake.
func TestInterfacesAreSmall(t *testing.T) {
	sources, exports := compiled(t)
	found := 0
	excused := map[string]bool{}
	for _, p := range sources {
		fset := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(file) {
				files = append(files, file)
			}
		}
		methods, err := interfaces(fset, p.ImportPath, files, exports)
		if err != nil {
			t.Fatal(err)
		}
		for name, n := range methods {
			found++
			name = strings.TrimPrefix(p.ImportPath, module) + "." + name
			switch _, may := large[name]; {
			case n > mostMethods && !may:
				t.Errorf("interface %s has %d methods, more than %d: split it by who calls it", name, n, mostMethods)
			case n > mostMethods:
				excused[name] = true
			}
		}
	}
	for name := range large {
		if !excused[name] {
			t.Errorf("%s is not large any more: take it from the list", name)
		}
	}
	if found < 20 {
		t.Errorf("only %d interfaces were found; the test has looked at nothing", found)
	}
}

// source is a package of this module.
type source struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// compiled returns the packages of this module, and the files of export data of all packages that they import.
func compiled(t *testing.T) (sources []source, exports types.Importer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles", "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p source
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, module) {
			sources = append(sources, p)
		}
	}
	return sources, importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("no export data of %s", path)
		}
		return os.Open(files[path])
	})
}

// interfaces returns how many methods each interface type of a package has. One without a name goes by its place.
func interfaces(fset *token.FileSet, path string, files []*ast.File, imports types.Importer) (map[string]int, error) {
	info := types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	cfg := types.Config{Importer: imports}
	if _, err := cfg.Check(path, fset, files, &info); err != nil {
		return nil, err
	}
	methods := make(map[string]int)
	for _, file := range files {
		names := make(map[ast.Expr]string)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				names[n.Type] = n.Name.Name
			case *ast.InterfaceType:
				name := names[n]
				if name == "" {
					at := fset.Position(n.Pos())
					name = fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line)
				}
				if i, ok := info.Types[n].Type.(*types.Interface); ok {
					methods[name] = i.NumMethods()
				}
			}
			return true
		})
	}
	return methods, nil
}

// Embedded methods count, also those of another package.
func TestInterfacesCountsMethods(t *testing.T) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "x.go", `package x

type small interface{ A(); B() }
type large interface { small; C() }
type embeds interface { error; D() }
func f(interface{ E() }) {}
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := interfaces(fset, "x", []*ast.File{file}, importer.Default())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"small": 2, "large": 3, "embeds": 2, "x.go:6": 1} {
		if got[name] != want {
			t.Errorf("%s has %d methods, want %d", name, got[name], want)
		}
	}
}
