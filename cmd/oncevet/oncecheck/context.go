package oncecheck

import (
	"go/token"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// A contextRoot says where a context begins.
type contextRoot struct {
	background  bool
	param, free int // -1: not there
}

// passCtx resolves the context of an effect of a called function.
func (f *flow) passCtx(e Effect, in ssa.CallInstruction, args, bound []ssa.Value) {
	switch {
	case e.CtxParam >= 0 && e.CtxParam < len(args):
		e.Text = f.text(in) + " (" + e.Where + ")" + textCtx
		f.passCtxOf(e, args[e.CtxParam], in.Common().Pos())
	case e.CtxFree >= 0 && e.CtxFree < len(bound):
		f.passCtxOf(e, bound[e.CtxFree], e.pos)
	}
}

// passCtxOf adds an effect whose context is v: a mistake if v is context.Background, nothing in itself if it is the
// function's own parameter.
func (f *flow) passCtxOf(e Effect, v ssa.Value, pos token.Pos) {
	root := rootOf(v, 0)
	e.pos, e.CtxParam, e.CtxFree = pos, root.param, root.free
	switch {
	case root.background:
		e.Kind = InTx
		e.CtxParam, e.CtxFree = -1, -1
		f.keep(e)
	case root.param >= 0 || root.free >= 0:
		e.Kind = PassesCtx
		f.keep(e)
	}
}

func rootOf(v ssa.Value, depth int) contextRoot {
	none := contextRoot{false, -1, -1}
	if depth > 20 {
		return none
	}
	depth++
	switch v := unwrapped(v).(type) {
	case *ssa.Parameter:
		return contextRoot{false, slices.Index(v.Parent().Params, v), -1}
	case *ssa.FreeVar:
		return contextRoot{false, -1, slices.Index(v.Parent().FreeVars, v)}
	case *ssa.UnOp:
		return rootOf(v.X, depth)
	case *ssa.Alloc:
		if val := onlyStore(v); val != nil {
			return rootOf(val, depth)
		}
	case *ssa.Extract:
		if call, ok := v.Tuple.(*ssa.Call); ok {
			return rootOf(call, depth)
		}
	case *ssa.Call:
		switch name := calleeName(&v.Call); {
		case name == "context.Background", name == "context.TODO":
			return contextRoot{true, -1, -1}
		case passesOn[name] && len(v.Call.Args) > 0:
			return rootOf(v.Call.Args[0], depth)
		}
	case *ssa.Phi:
		roots := contextRoot{}
		for i, edge := range v.Edges {
			root := rootOf(edge, depth)
			if i > 0 && root != roots {
				return none
			}
			roots = root
		}
		return roots
	}
	return none
}
