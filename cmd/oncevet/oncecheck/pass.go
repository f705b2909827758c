package oncecheck

import (
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// passedTo returns the functions that the calls of this package pass as a parameter.
func (s *search) passedTo(p *ssa.Parameter) (all []given) {
	i := slices.Index(p.Parent().Params, p)
	for _, fn := range s.funcs {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				call, ok := instr.(ssa.CallInstruction)
				if !ok {
					continue
				}
				callee := call.Common().StaticCallee()
				if callee == nil || s.own(callee) != p.Parent() || i >= len(call.Common().Args) {
					continue
				}
				for _, g := range s.value(call.Common().Args[i]) {
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
func (s *search) kept(field *types.Var) (all []given) {
	for store := range s.storesIn(func(addr ssa.Value) bool { return fieldVar(addr) == field }) {
		all = append(all, s.value(store.Val)...)
	}
	return append(all, s.leaf(given{field: field}))
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
func (s *search) elements(container ssa.Value) (all []given) {
	roots := map[any]bool{}
	s.roots(container, roots)
	matches := func(other ssa.Value) bool {
		others := map[any]bool{}
		s.roots(other, others)
		for root := range others {
			if roots[root] {
				return true
			}
		}
		return false
	}
	for _, fn := range s.funcs {
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				switch in := instr.(type) {
				case *ssa.MapUpdate:
					if s.fits(in.Value) && matches(in.Map) {
						all = append(all, s.value(in.Value)...)
					}
				case *ssa.Store:
					if index, ok := in.Addr.(*ssa.IndexAddr); ok && s.fits(in.Val) && matches(index.X) {
						all = append(all, s.value(in.Val)...)
					}
				}
			}
		}
	}
	for root := range roots {
		switch root := root.(type) {
		case *ssa.Parameter:
			all = append(append(all, s.passedTo(root)...), s.leaf(given{param: root}))
		case *types.Var:
			all = append(all, s.kept(root)...)
		}
	}
	return all
}

// fits reports whether an element of a map or a slice may be what a search is for.
func (s *search) fits(v ssa.Value) bool {
	return isFunc(v) || s.method != "" && types.IsInterface(v.Type())
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
