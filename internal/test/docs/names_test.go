package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var quoted = regexp.MustCompile("`\\*?([A-Za-z]\\w*)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?")

// names has the names of this repository's packages, also of their examples and tests.
type names struct {
	packages map[string]map[string]bool // of the packages with a name: what they declare
	members  map[string]map[string]bool // of the types with a name: fields and methods
}

// Each name of this repository that a page has in backquotes, such as `consumer.Config`, `Trace.Lease` or
// `relay.Config.Queue`, exists.
func TestNames(t *testing.T) {
	t.Parallel()
	known := names{map[string]map[string]bool{}, map[string]map[string]bool{}}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") {
			known.read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages(t) {
		if strings.HasSuffix(page, "CHANGELOG.md") { // it names what there was
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(code.ReplaceAllString(read(t, page), ""), -1) {
			ours, fault := known.fault(m[1], m[2], m[3])
			if ours {
				found++
			}
			if fault {
				t.Errorf("%s: %s does not exist", strings.TrimPrefix(page, root+"/"), strings.TrimPrefix(m[0], "`"))
			}
		}
	}
	if found < 150 {
		t.Errorf("%d names: where are the others?", found)
	}
}

// fault reports whether first is a package or a type of this repository, and whether it lacks the name. member may be
// empty.
func (n names) fault(first, name, member string) (ours, fault bool) {
	declared, isPackage := n.packages[first]
	members, isType := n.members[first]
	isType = isType && ast.IsExported(first) // otherwise it is a variable
	switch {
	case isPackage && !declared[name]:
		return true, true
	case isPackage && member != "":
		return true, !n.members[name][member]
	case isPackage:
		return true, false
	}
	return isType, isType && !members[name]
}

func (n names) read(t *testing.T, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	pkg := strings.TrimSuffix(file.Name.Name, "_test")
	if pkg == "main" {
		return
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(n.packages, pkg, d.Name.Name)
			} else {
				add(n.members, typeName(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						add(n.packages, pkg, name.Name)
					}
				case *ast.TypeSpec:
					add(n.packages, pkg, s.Name.Name)
					n.addMembers(s)
				}
			}
		}
	}
}

// addMembers adds the fields of a struct, or the methods of an interface. Of an embedded type it adds the name, and not
// the members.
func (n names) addMembers(s *ast.TypeSpec) {
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, name := range f.Names {
			add(n.members, s.Name.Name, name.Name)
		}
		if len(f.Names) == 0 {
			add(n.members, s.Name.Name, typeName(f.Type))
		}
	}
}

func add(to map[string]map[string]bool, name, member string) {
	if to[name] == nil {
		to[name] = map[string]bool{}
	}
	to[name][member] = true
}

// typeName returns the name of a type without its package, its parameters and *.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}
