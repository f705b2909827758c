package oncecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// skips reports whether a package needs no work: it is a library that the analyzers know, or one that nothing of
// txonce and no database can be in.
func skips(path, modulePath, moduleVersion string, imports []string) bool {
	first, _, _ := strings.Cut(path, "/")
	if !strings.Contains(first, ".") && (modulePath == "" || modulePath == "std") && path != "command-line-arguments" {
		return true // the standard library
	}
	if isLibrary(path) || isOwn(path) {
		return true
	}
	if moduleVersion == "" {
		return false
	}
	return !slices.ContainsFunc(imports, func(p string) bool {
		return isLibrary(p) || strings.HasPrefix(p, pathTxonce+"/")
	})
}

func skipsPackage(pass *analysis.Pass) bool {
	var imports []string
	for _, p := range pass.Pkg.Imports() {
		imports = append(imports, p.Path())
	}
	path, version := "", ""
	if pass.Module != nil {
		path, version = pass.Module.Path, pass.Module.Version
	}
	return skips(pass.Pkg.Path(), path, version, imports)
}

// findAll finds the mistakes in a package, and exports the summaries of its functions.
func findAll(pass *analysis.Pass) (any, error) {
	if skipsPackage(pass) {
		return []Finding(nil), nil
	}
	a := &analysisOf{
		pass: pass, sums: map[*ssa.Function]*Summary{}, imported: map[*types.Func]*Summary{},
		carrying: map[types.Type]bool{}, calls: map[token.Pos]*ast.CallExpr{}, ignores: readIgnores(pass),
		found: map[finding]bool{}, judged: map[judgement]bool{}, keeps: map[*types.Var]*Keeps{},
		outside: map[token.Pos]string{}, lent: map[any]bool{},
	}
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				a.calls[call.Lparen] = call
			}
			return true
		})
	}
	a.build()
	a.lends()
	a.summarize()
	a.places()
	for fn, s := range a.sums {
		if obj, ok := fn.Object().(*types.Func); ok && obj.Pkg() == pass.Pkg && !s.empty() {
			pass.ExportObjectFact(obj, s)
		}
	}
	for field, k := range a.keeps {
		pass.ExportObjectFact(field, k)
	}
	return a.findings, nil
}

// build makes the SSA form of the package, as pass buildssa does. It is not required, so that packages that are skipped
// cost nothing.
func (a *analysisOf) build() {
	a.prog = ssa.NewProgram(a.pass.Fset, 0)
	for _, p := range a.pass.Pkg.Imports() {
		a.prog.CreatePackage(p, nil, nil, true)
	}
	pkg := a.prog.CreatePackage(a.pass.Pkg, a.pass.Files, a.pass.TypesInfo, false)
	pkg.Build()
	var add func(fn *ssa.Function)
	add = func(fn *ssa.Function) {
		for _, literal := range fn.AnonFuncs {
			add(literal)
		}
		a.funcs = append(a.funcs, fn)
		a.sums[fn] = &Summary{}
	}
	for _, file := range a.pass.Files {
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok {
				if fn := a.prog.FuncValue(a.pass.TypesInfo.Defs[d.Name].(*types.Func)); fn != nil {
					add(fn)
				}
			}
		}
	}
	add(pkg.Func("init")) // the initialization of the package's variables
}
