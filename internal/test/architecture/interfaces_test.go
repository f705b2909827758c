package architecture_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mostMethods is how many methods an interface may have, including those of the interfaces that it embeds.
const mostMethods = 10

// foreign has the number of methods of each interface of another module that ours embed.
var foreign = map[string]int{"error": 1, "fmt.Stringer": 1}

// An interface with many methods has one implementation and no fake.
func TestInterfacesAreSmall(t *testing.T) {
	fset := token.NewFileSet()
	found := interfaces{}
	for _, dir := range sources(t) {
		for _, name := range dir.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(dir.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(file) {
				found.add(dir.ImportPath, file)
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("only %d interfaces were found; the test has checked nothing", len(found))
	}
	for name := range found {
		n, err := found.methods(name)
		if err != nil {
			t.Error(err)
		}
		if n > mostMethods {
			t.Errorf("interface %s has %d methods, more than %d: split it by caller", name, n, mostMethods)
		}
	}
}

// source is a package of this module.
type source struct {
	ImportPath, Dir string
	GoFiles         []string
}

func sources(t *testing.T) (packages []source) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles", module+"...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p source
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// interfaces has the named interface types, by import path and name.
type interfaces map[string]declared

type declared struct {
	own    int      // methods in the declaration itself
	embeds []string // keys of interfaces, or of foreign
}

func (all interfaces) add(importPath string, file *ast.File) {
	imports := map[string]string{} // by the name in this file
	for _, spec := range file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = p
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		typ, ok := spec.Type.(*ast.InterfaceType)
		if !ok {
			return true
		}
		var d declared
		for _, field := range typ.Methods.List {
			if len(field.Names) > 0 {
				d.own++
				continue
			}
			embedded := field.Type
			if generic, ok := embedded.(*ast.IndexExpr); ok {
				embedded = generic.X
			}
			switch e := embedded.(type) {
			case *ast.Ident:
				if _, known := foreign[e.Name]; known {
					d.embeds = append(d.embeds, e.Name)
				} else {
					d.embeds = append(d.embeds, importPath+"."+e.Name)
				}
			case *ast.SelectorExpr:
				d.embeds = append(d.embeds, imports[e.X.(*ast.Ident).Name]+"."+e.Sel.Name)
			}
		}
		all[importPath+"."+spec.Name.Name] = d
		return true
	})
}

func (all interfaces) methods(name string) (int, error) {
	d, ours := all[name]
	if !ours {
		n, known := foreign[name]
		if !known {
			return 0, errors.New("add the number of methods of " + name + " to the map foreign")
		}
		return n, nil
	}
	n := d.own
	for _, embedded := range d.embeds {
		more, err := all.methods(embedded)
		if err != nil {
			return 0, err
		}
		n += more
	}
	return n, nil
}

func TestMethodsAreCounted(t *testing.T) {
	all := interfaces{}
	for importPath, text := range map[string]string{
		"m/x": "package x\nimport other \"m/y\"\ntype Small interface{ A(); B() }\ntype Large interface { Small; other.Y[int]; C() }\ntype Fails interface { error; D() }",
		"m/y": "package y\ntype Y[T any] interface{ E(); F(); G() }\ntype Foreign interface{ io.Reader }",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		all.add(importPath, file)
	}
	for name, want := range map[string]int{"m/x.Small": 2, "m/x.Large": 6, "m/x.Fails": 2, "m/y.Y": 3} {
		if got, err := all.methods(name); err != nil || got != want {
			t.Errorf("%s has %d methods (%v), want %d", name, got, err, want)
		}
	}
	if _, err := all.methods("m/y.Foreign"); err == nil {
		t.Error("an unknown interface of another module is counted")
	}
}
