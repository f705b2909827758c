package oncecheck

import (
	"go/token"
	"iter"
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
	root := f.rootOf(v, 0)
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

func (f *flow) rootOf(v ssa.Value, depth int) contextRoot {
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
		if global, ok := v.X.(*ssa.Global); ok {
			if val := f.onlyValue(global); val != nil {
				return f.rootOf(val, depth)
			}
		}
		return f.rootOf(v.X, depth)
	case *ssa.Alloc:
		if val := onlyStore(v); val != nil {
			return f.rootOf(val, depth)
		}
	case *ssa.Extract:
		if call, ok := v.Tuple.(*ssa.Call); ok {
			return f.rootOf(call, depth)
		}
	case *ssa.Call:
		switch name := calleeName(&v.Call); {
		case name == "context.Background", name == "context.TODO":
			return contextRoot{true, -1, -1}
		case passesOn[name] && len(v.Call.Args) > 0:
			return f.rootOf(v.Call.Args[0], depth)
		}
	case *ssa.Phi:
		roots := contextRoot{}
		for i, edge := range v.Edges {
			root := f.rootOf(edge, depth)
			if i > 0 && root != roots {
				return none
			}
			roots = root
		}
		return roots
	}
	return none
}

// onlyValue returns the only value that this package stores in one of its variables, or nil.
func (a *analysisOf) onlyValue(global *ssa.Global) (val ssa.Value) {
	for store := range a.storesIn(func(addr ssa.Value) bool { return addr == global }) {
		if val != nil {
			return nil
		}
		val = store.Val
	}
	return val
}

// storesIn returns the stores of this package to addresses that match.
func (a *analysisOf) storesIn(matches func(addr ssa.Value) bool) iter.Seq[*ssa.Store] {
	return func(yield func(*ssa.Store) bool) {
		for _, fn := range a.funcs {
			for _, block := range fn.Blocks {
				for _, instr := range block.Instrs {
					if store, ok := instr.(*ssa.Store); ok && matches(store.Addr) && !yield(store) {
						return
					}
				}
			}
		}
	}
}
