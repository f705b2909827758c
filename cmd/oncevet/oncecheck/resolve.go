package oncecheck

import (
	"go/types"

	"golang.org/x/tools/go/ssa"
)

// A given is a function that a program gives to txonce, or where that function comes from.
type given struct {
	fn  *ssa.Function // of this package; nil: of another
	obj *types.Func   // of another package
	ret *Summary      // of a function that a function of another package returned
	via ssa.Value     // a function that a function of another package wrapped
	as  Take          // how
	// Callers in other packages know the function: it is this parameter, or in this field.
	param *ssa.Parameter
	field *types.Var
	Part
}

// A Part says which function of a value is meant.
type Part struct {
	Method  string // the method of a value in an interface; empty: the value itself, or the elements of a map or a slice
	Results int    // 1: the function that the function returns, such as that of middleware
}

// A search finds the functions that a value may be, as far as they can be known.
type search struct {
	*analysisOf
	method string // searched for in the values of interfaces; empty: functions
	seen   map[ssa.Value]bool
}

func (a *analysisOf) resolve(v ssa.Value) []given { return a.resolvePart(v, Part{}) }

func (a *analysisOf) resolvePart(v ssa.Value, part Part) []given {
	s := &search{a, part.Method, map[ssa.Value]bool{}}
	all := s.value(v)
	for range part.Results {
		var results []given
		for _, g := range all {
			results = append(results, s.resultOf(g, 0)...)
		}
		all = results
	}
	return all
}

// of returns a search for a method, or for functions, that does not look at a value again.
func (s *search) of(method string) *search {
	if method == s.method {
		return s
	}
	return &search{s.analysisOf, method, map[ssa.Value]bool{}}
}

func (s *search) value(v ssa.Value) (all []given) {
	if s.seen[v] {
		return nil
	}
	s.seen[v] = true
	switch v := v.(type) {
	case *ssa.Function:
		return s.declared(v)
	case *ssa.MakeClosure:
		return s.closure(v)
	case *ssa.MakeInterface:
		if s.method != "" {
			return s.methodOfType(v.X.Type())
		}
		return s.value(v.X)
	case *ssa.Phi:
		for _, edge := range v.Edges {
			all = append(all, s.value(edge)...)
		}
		return all
	case *ssa.Parameter:
		return append(s.passedTo(v), s.leaf(given{param: v}))
	}
	switch v.Type().Underlying().(type) {
	case *types.Map, *types.Slice:
		return s.elements(v)
	}
	switch v := v.(type) {
	case *ssa.ChangeType:
		return s.value(v.X)
	case *ssa.ChangeInterface:
		return s.value(v.X)
	case *ssa.UnOp:
		return s.loaded(v.X)
	case *ssa.FreeVar:
		for _, b := range bound(v) {
			all = append(all, s.value(b)...)
		}
	case *ssa.Call:
		return s.returned(v, 0)
	case *ssa.Field:
		return s.kept(fieldVar(v))
	case *ssa.Lookup:
		return s.elements(v.X)
	case *ssa.Extract:
		switch from := v.Tuple.(type) {
		case *ssa.Lookup:
			return s.elements(from.X)
		case *ssa.Call:
			return s.returned(from, v.Index)
		case *ssa.Next:
			if r, ok := from.Iter.(*ssa.Range); ok {
				return s.elements(r.X)
			}
		}
	}
	return all
}

func (s *search) leaf(g given) given {
	g.Method = s.method
	return g
}

// loaded returns what is stored at an address.
func (s *search) loaded(addr ssa.Value) (all []given) {
	switch x := addr.(type) {
	case *ssa.Alloc:
		return s.stored(x)
	case *ssa.FieldAddr:
		return s.kept(fieldVar(x))
	case *ssa.IndexAddr:
		return s.elements(x.X)
	case *ssa.FreeVar:
		for _, b := range bound(x) {
			if alloc, ok := b.(*ssa.Alloc); ok {
				all = append(all, s.stored(alloc)...)
			}
		}
	case *ssa.Global:
		for store := range s.storesIn(func(addr ssa.Value) bool { return addr == x }) {
			all = append(all, s.value(store.Val)...)
		}
	}
	return all
}

// stored returns what is stored in a variable.
func (s *search) stored(alloc *ssa.Alloc) (all []given) {
	for _, ref := range *alloc.Referrers() {
		if store, ok := ref.(*ssa.Store); ok && store.Addr == alloc {
			all = append(all, s.value(store.Val)...)
		}
	}
	return all
}

// returned returns the functions that a call returns.
func (s *search) returned(call *ssa.Call, index int) (all []given) {
	common := &call.Call
	fn := common.StaticCallee()
	switch {
	case isBuiltin(common):
		return nil
	case common.IsInvoke():
		for _, g := range s.of(common.Method.Name()).value(common.Value) {
			if g.param == nil && g.field == nil {
				all = append(all, s.resultOf(g, index)...)
			}
		}
		return all
	case fn == nil:
		for _, g := range s.of("").value(common.Value) {
			all = append(all, s.resultOf(g, index)...)
		}
		for _, arg := range common.Args { // of middleware in a loop: h = m(h)
			if types.Identical(arg.Type(), call.Type()) {
				all = append(all, s.value(arg)...)
			}
		}
		return all
	}
	if own := s.own(fn); own != nil {
		return s.resultOf(given{fn: own}, index)
	}
	sum := s.summaryOf(common)
	if sum == nil {
		return nil
	}
	all = s.resultOf(given{obj: objectOf(fn)}, index)
	for _, t := range sum.Takes {
		switch {
		case t.Param >= len(common.Args):
		case t.Within == itself:
			all = append(all, s.resolvePart(common.Args[t.Param], t.Part)...)
		case t.Within >= 0:
			all = append(all, given{via: common.Args[t.Param], as: t})
		}
	}
	return all
}

// resultOf returns the functions that a function returns.
func (s *search) resultOf(g given, index int) (all []given) {
	switch {
	case g.param != nil, g.field != nil:
		g.Results++
		return []given{g}
	case g.fn != nil:
		for _, block := range g.fn.Blocks {
			for _, instr := range block.Instrs {
				if r, ok := instr.(*ssa.Return); ok && index < len(r.Results) {
					all = append(all, s.value(r.Results[index])...)
				}
			}
		}
	case g.obj != nil && g.ret == nil:
		if sum := s.summaryOfObject(g.obj); sum != nil && sum.Returns != nil {
			all = append(all, given{obj: g.obj, ret: sum.Returns})
		}
	}
	return all
}

// closure returns a function literal, or the method of a method value.
func (s *search) closure(mk *ssa.MakeClosure) []given {
	fn := mk.Fn.(*ssa.Function)
	if obj := objectOf(fn); obj != nil && len(mk.Bindings) == 1 {
		if recv := obj.Signature().Recv(); recv != nil && types.IsInterface(recv.Type()) {
			return s.of(obj.Name()).value(mk.Bindings[0])
		}
	}
	return s.declared(fn)
}

// methodOfType returns the method of a type that a search is for.
func (s *search) methodOfType(t types.Type) []given {
	obj, _, _ := types.LookupFieldOrMethod(t, true, s.pass.Pkg, s.method)
	m, ok := obj.(*types.Func)
	if !ok || types.IsInterface(m.Signature().Recv().Type()) {
		return nil
	}
	if m = m.Origin(); m.Pkg() != s.pass.Pkg {
		return []given{{obj: m}}
	}
	return s.declared(s.prog.FuncValue(m))
}
