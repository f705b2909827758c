package oncecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// A fix replaces the source between two positions when a handler's transaction has the same method.
type fix struct {
	from, to token.Pos
	replace  bool       // with the name of the transaction; otherwise .WithTx(name) is inserted at to
	method   string     // what is then called on the transaction; empty: the transaction is an argument
	sig      types.Type // of that method
	txType   types.Type // of WithTx's parameter
	use      string     // "\x00" stands for the name of the transaction
}

// toTx returns the fix for a statement on a pool: the same statement on the transaction.
func (f *flow) toTx(in ssa.CallInstruction, st statement) *fix {
	call := f.calls[in.Common().Pos()]
	if call == nil {
		return nil
	}
	if st.method == "BeginFunc" || st.method == "BeginTxFunc" {
		if calleeName(in.Common()) != "" && len(call.Args) > 2 {
			return &fix{from: call.Args[1].Pos(), to: call.Args[1].End(), replace: true, use: "\x00"}
		}
	}
	method := ""
	expr := ast.Expr(call)
	for { // down to the pool at the beginning of db.WithContext(ctx).Create(x)
		c, ok := ast.Unparen(expr).(*ast.CallExpr)
		if !ok {
			break
		}
		sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
		if !ok || f.pass.TypesInfo.Selections[sel] == nil {
			return nil
		}
		method, expr = sel.Sel.Name, sel.X
	}
	t := f.pass.TypesInfo.TypeOf(expr)
	if t == nil || method == "" {
		return nil
	}
	return &fix{
		from: expr.Pos(), to: expr.End(), replace: true,
		method: method, sig: methodType(t, method), use: "\x00." + method,
	}
}

// withTx returns the fix for a method of a type such as sqlc's Queries, which has a method WithTx.
func (f *flow) withTx(in ssa.CallInstruction) *fix {
	call := f.calls[in.Common().Pos()]
	if call == nil {
		return nil
	}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || f.pass.TypesInfo.Selections[sel] == nil {
		return nil
	}
	t := f.pass.TypesInfo.TypeOf(sel.X)
	sig, _ := methodType(t, "WithTx").(*types.Signature)
	if sig == nil || sig.Params().Len() != 1 || sig.Results().Len() != 1 ||
		typeName(sig.Results().At(0).Type()) != typeName(t) {
		return nil
	}
	return &fix{
		from: sel.X.End(), to: sel.X.End(),
		txType: sig.Params().At(0).Type(), use: short(sel.X) + ".WithTx(\x00)." + sel.Sel.Name,
	}
}

func methodType(t types.Type, name string) types.Type {
	obj, _, _ := types.LookupFieldOrMethod(t, true, nil, name)
	if m, ok := obj.(*types.Func); ok {
		return m.Type()
	}
	return nil
}

// apply returns what to use instead, and the edit, if the fix is plain in a handler whose transaction is tx.
func (x *fix) apply(pass *analysis.Pass, tx *types.Var) (use string, edits []analysis.TextEdit) {
	if x == nil || tx == nil || tx.Name() == "" || tx.Name() == "_" {
		return "", nil
	}
	scope := pass.Pkg.Scope().Innermost(x.from)
	if scope == nil {
		return "", nil
	}
	if _, seen := scope.LookupParent(tx.Name(), x.from); seen != tx {
		return "", nil
	}
	text := tx.Name()
	switch {
	case !x.replace:
		if !types.AssignableTo(tx.Type(), x.txType) {
			return "", nil
		}
		text = ".WithTx(" + tx.Name() + ")"
	case x.method != "":
		if has := methodType(tx.Type(), x.method); has == nil || x.sig == nil || !types.Identical(has, x.sig) {
			return "", nil
		}
	}
	edits = []analysis.TextEdit{{Pos: x.from, End: x.to, NewText: []byte(text)}}
	return strings.ReplaceAll(x.use, "\x00", tx.Name()), edits
}

// text returns a call without its arguments, for a message.
func (a *analysisOf) text(in ssa.CallInstruction) string {
	if call := a.calls[in.Common().Pos()]; call != nil {
		return short(call.Fun)
	}
	name, _, _ := methodOf(in.Common())
	return name
}

func short(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return short(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		if len(e.Args) == 0 {
			return short(e.Fun) + "()"
		}
		return short(e.Fun) + "(…)"
	case *ast.ParenExpr:
		return short(e.X)
	case *ast.StarExpr:
		return "*" + short(e.X)
	case *ast.UnaryExpr:
		return e.Op.String() + short(e.X)
	case *ast.IndexExpr:
		return short(e.X)
	case *ast.IndexListExpr:
		return short(e.X)
	case *ast.CompositeLit:
		return short(e.Type) + "{…}"
	case *ast.FuncLit:
		return "func"
	}
	return "…"
}
