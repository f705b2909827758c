package oncecheck

import (
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// passedTo returns the functions that the calls of this package pass as a parameter.
func (a *analysisOf) passedTo(p *ssa.Parameter, seen map[ssa.Value]bool) (all []given) {
	i := slices.Index(p.Parent().Params, p)
	for _, fn := range a.funcs {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				call, ok := instr.(ssa.CallInstruction)
				if !ok {
					continue
				}
				callee := call.Common().StaticCallee()
				if callee == nil || a.own(callee) != p.Parent() || i >= len(call.Common().Args) {
					continue
				}
				for _, g := range a.resolved(call.Common().Args[i], seen) {
					if g.fn == nil || !isInTransaction(g.fn) {
						all = append(all, g)
					}
				}
			}
		}
	}
	return all
}

// isInTransaction reports whether a function literal is in a function that has a transaction: what the literal has
// captured may come from it.
func isInTransaction(fn *ssa.Function) bool {
	for outer := fn.Parent(); outer != nil; outer = outer.Parent() {
		if slices.ContainsFunc(outer.Params, func(p *ssa.Parameter) bool { return executes(p.Type(), 0) }) {
			return true
		}
	}
	return false
}

// kept returns the functions that this package stores in a field of a struct.
func (a *analysisOf) kept(field *types.Var, seen map[ssa.Value]bool) (all []given) {
	for store := range a.storesIn(func(addr ssa.Value) bool { return fieldVar(addr) == field }) {
		all = append(all, a.resolved(store.Val, seen)...)
	}
	return all
}

// fieldVar returns the field of a struct that an address or a value is, or nil.
func fieldVar(v ssa.Value) *types.Var {
	var t types.Type
	i := 0
	switch v := v.(type) {
	case *ssa.FieldAddr:
		t, i = v.X.Type().Underlying().(*types.Pointer).Elem(), v.Field
	case *ssa.Field:
		t, i = v.X.Type(), v.Field
	default:
		return nil
	}
	return t.Underlying().(*types.Struct).Field(i).Origin()
}

// elements returns the functions that this package stores in a map or a slice.
func (a *analysisOf) elements(container ssa.Value, seen map[ssa.Value]bool) (all []given) {
	roots := map[any]bool{}
	a.roots(container, roots)
	matches := func(other ssa.Value) bool {
		others := map[any]bool{}
		a.roots(other, others)
		for root := range others {
			if roots[root] {
				return true
			}
		}
		return false
	}
	for _, fn := range a.funcs {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				switch in := instr.(type) {
				case *ssa.MapUpdate:
					if isFunc(in.Value) && matches(in.Map) {
						all = append(all, a.resolved(in.Value, seen)...)
					}
				case *ssa.Store:
					if index, ok := in.Addr.(*ssa.IndexAddr); ok && isFunc(in.Val) && matches(index.X) {
						all = append(all, a.resolved(in.Val, seen)...)
					}
				}
			}
		}
	}
	return all
}

func isFunc(v ssa.Value) bool {
	_, ok := v.Type().Underlying().(*types.Signature)
	return ok
}

// roots collects the variables, fields and allocations that a map or a slice is.
func (a *analysisOf) roots(v ssa.Value, all map[any]bool) {
	if v == nil || all[v] {
		return
	}
	all[v] = true
	if field := fieldVar(v); field != nil {
		all[field] = true
		return
	}
	switch v := v.(type) {
	case *ssa.UnOp:
		a.roots(v.X, all)
	case *ssa.Slice:
		a.roots(v.X, all)
	case *ssa.ChangeType:
		a.roots(v.X, all)
	case *ssa.FreeVar:
		for _, b := range bound(v) {
			a.roots(b, all)
		}
	case *ssa.Phi:
		for _, edge := range v.Edges {
			a.roots(edge, all)
		}
	case *ssa.Call:
		if isBuiltin(&v.Call) { // append
			for _, arg := range v.Call.Args {
				a.roots(arg, all)
			}
		}
	}
	if v.Referrers() == nil {
		return
	}
	for _, ref := range *v.Referrers() {
		switch ref := ref.(type) {
		case *ssa.Store:
			if ref.Val == v {
				a.roots(ref.Addr, all)
			}
		case *ssa.Slice:
			a.roots(ref, all)
		}
	}
}

// dynamic calls each for the calls in a function of functions that it does not name, such as the next one of
// middleware, that pass the function's parameter i as their argument j.
func dynamic(fn *ssa.Function, each func(call ssa.CallInstruction, i, j int)) {
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			call, ok := instr.(ssa.CallInstruction)
			if !ok || call.Common().IsInvoke() || call.Common().StaticCallee() != nil || isBuiltin(call.Common()) {
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

// takes adds to the summary of a function that it takes a handler: v is a handler whose parameter tx is the transaction.
func (a *analysisOf) takes(v ssa.Value, tx, within int) {
	p := parameterOf(v)
	if p == nil || a.sums[p.Parent()] == nil {
		return
	}
	s, t := a.sums[p.Parent()], Take{slices.Index(p.Parent().Params, p), tx, within}
	if !slices.Contains(s.Takes, t) {
		s.Takes = append(s.Takes, t)
	}
}

// parameterOf returns the parameter that a value is, also where a function literal has captured it, or nil.
func parameterOf(v ssa.Value) *ssa.Parameter {
	switch v := unwrapped(v).(type) {
	case *ssa.Parameter:
		return v
	case *ssa.FreeVar:
		for _, b := range bound(v) {
			return parameterOf(b)
		}
	case *ssa.UnOp:
		return parameterOf(v.X)
	case *ssa.Alloc:
		if val := onlyStore(v); val != nil {
			return parameterOf(val)
		}
	}
	return nil
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
				if g.fn == nil {
					continue
				}
				before := len(g.fn.Params) - g.fn.Signature.Params().Len()
				dynamic(g.fn, func(call ssa.CallInstruction, i, j int) {
					if p := parameterOf(call.Common().Value); p != nil && p.Parent() == f.fn {
						f.takes(p, j, i-before)
					}
				})
			}
		}
	}
}
