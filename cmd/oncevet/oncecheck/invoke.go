package oncecheck

import (
	"go/types"

	"golang.org/x/tools/go/ssa"
)

// invoked looks at a handler's call of an interface's method. It reports what the method does if only one type can be
// behind the interface, and neither the value nor an argument comes from the transaction.
func (f *flow) invoked(call ssa.CallInstruction, h frame) {
	common := call.Common()
	if _, ok := statementOf(common); ok || h.class(f.origin(common.Value)) != outside ||
		h.class(f.anyOrigin(common.Args)) == inTx {
		return
	}
	t := f.onlyType(common.Value, 3)
	if t == nil {
		return
	}
	s := &search{f.analysisOf, common.Method.Name(), map[ssa.Value]bool{}}
	for _, g := range s.methodOfType(t) {
		var effects []Effect
		if g.fn != nil {
			effects = f.sums[g.fn].Effects
		} else if sum := f.summaryOfObject(g.obj); sum != nil {
			effects = sum.Effects
		}
		for _, e := range effects {
			if (e.Kind != Outside && e.Kind != Always) || !e.wrong(frame{before: 1}) {
				continue
			}
			if e.pos = common.Pos(); e.Kind == Outside {
				e.Text = f.text(call) + " (" + e.Where + ")" + textOutside
			} else {
				e.Text = f.text(call) + ": " + e.Text + " (" + e.Where + ")"
			}
			f.reportEffect(e, "", nil)
		}
	}
}

// onlyType returns the type that is behind an interface: that of a value made in the same function, or that of all
// values that the package stores in a field that no other package can set. It is nil if there may be others.
func (a *analysisOf) onlyType(v ssa.Value, depth int) types.Type {
	switch v := v.(type) {
	case *ssa.MakeInterface:
		return v.X.Type()
	case *ssa.ChangeInterface:
		return a.onlyType(v.X, depth)
	case *ssa.UnOp:
		if field := fieldVar(v.X); field != nil && !field.Exported() && field.Pkg() == a.pass.Pkg && depth > 0 {
			return a.onlyTypeIn(field, depth-1)
		}
	}
	return nil
}

func (a *analysisOf) onlyTypeIn(field *types.Var, depth int) (only types.Type) {
	for _, fn := range a.funcs {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				addr, ok := instr.(*ssa.FieldAddr)
				if !ok || fieldVar(addr) != field {
					continue
				}
				for _, ref := range *addr.Referrers() {
					switch ref := ref.(type) {
					case *ssa.UnOp, *ssa.DebugRef:
					case *ssa.Store:
						t := a.onlyType(ref.Val, depth)
						if ref.Addr != addr || t == nil || only != nil && !types.Identical(t, only) {
							return nil
						}
						only = t
					default: // a function that gets the address may store another type
						return nil
					}
				}
			}
		}
	}
	return only
}
