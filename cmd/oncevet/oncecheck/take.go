package oncecheck

import (
	"fmt"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// A Take is a parameter that is a function, or that has functions in it, and these become handlers, or a handler calls
// them with its transaction.
type Take struct {
	Param int
	Part
	Tx int // which of the function's parameters is the transaction
	// Within is the parameter that is the transaction of the function that is returned, such as middleware, and that
	// calls Param. It is itself if Param is returned, and nowhere if the function is given to txonce here.
	Within int
}

const (
	nowhere = -1
	itself  = -2
)

// Keeps are the functions in a field of an exported struct that become handlers, as Take says it of parameters.
type Keeps struct{ All []Take }

// AFact makes Keeps a fact.
func (*Keeps) AFact() {}

func (k *Keeps) String() string { return fmt.Sprintf("%d handlers", len(k.All)) }

// takes notes that a function comes from a parameter or a field: callers in other packages know it.
func (a *analysisOf) takes(g given, tx, within int) {
	t := Take{Part: g.Part, Tx: tx, Within: within}
	switch {
	case g.param != nil && a.sums[g.param.Parent()] != nil:
		s := a.sums[g.param.Parent()]
		if t.Param = slices.Index(g.param.Parent().Params, g.param); !slices.Contains(s.Takes, t) {
			s.Takes = append(s.Takes, t)
		}
	case g.field != nil && within == nowhere && g.field.Exported() && g.field.Pkg() == a.pass.Pkg:
		if a.keeps[g.field] == nil {
			a.keeps[g.field] = &Keeps{}
		}
		if k := a.keeps[g.field]; !slices.Contains(k.All, t) {
			k.All = append(k.All, t)
		}
	}
}

// storedInField looks at what is stored in another package's struct.
func (f *flow) storedInField(store *ssa.Store) {
	field := fieldVar(store.Addr)
	if field == nil || !field.Exported() || field.Pkg() == nil || field.Pkg() == f.pass.Pkg || isOwn(field.Pkg().Path()) {
		return
	}
	if k := new(Keeps); f.pass.ImportObjectFact(field, k) {
		for _, t := range k.All {
			f.handlers(store.Val, t.Part, t.Tx, store.Pos())
		}
	}
}

// wraps adds to the summary of a function what the function that it returns does with a handler that it got.
func (f *flow) wraps() {
	for _, block := range f.fn.Blocks {
		for _, instr := range block.Instrs {
			r, ok := instr.(*ssa.Return)
			if !ok || len(r.Results) == 0 || !isFunc(r.Results[0]) {
				continue
			}
			for _, g := range f.resolve(r.Results[0]) {
				if g.param != nil && g.param.Parent() == f.fn {
					f.takes(g, 0, itself)
				}
				if g.fn == nil {
					continue
				}
				before := len(g.fn.Params) - g.fn.Signature.Params().Len()
				dynamic(g.fn, func(call ssa.CallInstruction, i, j int) {
					for _, next := range f.resolvePart(call.Common().Value, called(call)) {
						if next.param != nil && next.param.Parent() == f.fn {
							f.takes(next, j, i-before)
						}
					}
				})
			}
		}
	}
}

// dynamic calls each for the calls in a function of functions that it does not name, such as the next one of
// middleware, that pass the function's parameter i as their argument j.
func dynamic(fn *ssa.Function, each func(call ssa.CallInstruction, i, j int)) {
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			call, ok := instr.(ssa.CallInstruction)
			if !ok || call.Common().StaticCallee() != nil || isBuiltin(call.Common()) {
				continue
			}
			for j, arg := range call.Common().Args {
				for i, p := range fn.Params {
					if unwrapped(arg) == p {
						each(call, i, j)
					}
				}
			}
		}
	}
}

// called returns which function of its value a call calls.
func called(call ssa.CallInstruction) Part {
	if call.Common().IsInvoke() {
		return Part{Method: call.Common().Method.Name()}
	}
	return Part{}
}

func isFunc(v ssa.Value) bool {
	_, ok := v.Type().Underlying().(*types.Signature)
	return ok
}
