package oncecheck

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// A given is a function that a program gives to txonce.
type given struct {
	fn  *ssa.Function // of this package; nil: of another
	obj *types.Func   // of another package
	ret *Summary      // of a function that a function of another package returned
	via ssa.Value     // a function that a function of another package wrapped
	as  Take          // how
}

// resolve returns the functions that a value may be, as far as they can be known.
func (a *analysisOf) resolve(v ssa.Value) []given { return a.resolved(v, map[ssa.Value]bool{}) }

func (a *analysisOf) resolved(v ssa.Value, seen map[ssa.Value]bool) (all []given) {
	if seen[v] {
		return nil
	}
	seen[v] = true
	switch v := v.(type) {
	case *ssa.Function:
		return a.declared(v)
	case *ssa.MakeClosure:
		return a.declared(v.Fn.(*ssa.Function))
	case *ssa.ChangeType:
		return a.resolved(v.X, seen)
	case *ssa.MakeInterface:
		return a.resolved(v.X, seen)
	case *ssa.Phi:
		for _, edge := range v.Edges {
			all = append(all, a.resolved(edge, seen)...)
		}
	case *ssa.UnOp:
		switch x := v.X.(type) {
		case *ssa.Alloc:
			return a.stored(x, seen)
		case *ssa.FieldAddr:
			return a.kept(fieldVar(x), seen)
		case *ssa.IndexAddr:
			return a.elements(x.X, seen)
		case *ssa.FreeVar:
			for _, b := range bound(x) {
				if alloc, ok := b.(*ssa.Alloc); ok {
					all = append(all, a.stored(alloc, seen)...)
				}
			}
		case *ssa.Global:
			for store := range a.storesIn(func(addr ssa.Value) bool { return addr == x }) {
				all = append(all, a.resolved(store.Val, seen)...)
			}
		}
	case *ssa.FreeVar:
		for _, b := range bound(v) {
			all = append(all, a.resolved(b, seen)...)
		}
	case *ssa.Call:
		return a.returned(v, seen)
	case *ssa.Parameter:
		return a.passedTo(v, seen)
	case *ssa.Field:
		return a.kept(fieldVar(v), seen)
	case *ssa.Lookup:
		return a.elements(v.X, seen)
	case *ssa.Extract:
		switch from := v.Tuple.(type) {
		case *ssa.Lookup:
			return a.elements(from.X, seen)
		case *ssa.Next:
			if r, ok := from.Iter.(*ssa.Range); ok {
				return a.elements(r.X, seen)
			}
		}
	}
	return all
}

// stored returns what is stored in a variable.
func (a *analysisOf) stored(alloc *ssa.Alloc, seen map[ssa.Value]bool) (all []given) {
	for _, ref := range *alloc.Referrers() {
		if store, ok := ref.(*ssa.Store); ok && store.Addr == alloc {
			all = append(all, a.resolved(store.Val, seen)...)
		}
	}
	return all
}

// returned returns the functions that a call returns.
func (a *analysisOf) returned(call *ssa.Call, seen map[ssa.Value]bool) (all []given) {
	fn := call.Call.StaticCallee()
	if fn == nil {
		return nil
	}
	if own := a.own(fn); own != nil {
		for _, block := range own.Blocks {
			for _, instr := range block.Instrs {
				if r, ok := instr.(*ssa.Return); ok && len(r.Results) > 0 {
					all = append(all, a.resolved(r.Results[0], seen)...)
				}
			}
		}
		return all
	}
	s := a.summaryOf(&call.Call)
	if s == nil {
		return nil
	}
	if s.Returns != nil {
		all = append(all, given{obj: objectOf(fn), ret: s.Returns})
	}
	for _, t := range s.Takes {
		if t.Within >= 0 && t.Param < len(call.Call.Args) {
			all = append(all, given{via: call.Call.Args[t.Param], as: t})
		}
	}
	return all
}

// declared returns a function, or the method of a method value.
func (a *analysisOf) declared(fn *ssa.Function) []given {
	if own := a.own(fn); own != nil {
		return []given{{fn: own}}
	}
	if obj := objectOf(fn); obj != nil && obj.Pkg() != nil && obj.Pkg() != a.pass.Pkg {
		return []given{{obj: obj}}
	}
	return nil
}

// own returns the function of this package that has the body of fn: its generic form, or the method of a method value.
func (a *analysisOf) own(fn *ssa.Function) *ssa.Function {
	if origin := fn.Origin(); origin != nil {
		fn = origin
	}
	if _, ok := a.sums[fn]; ok {
		return fn
	}
	if obj := objectOf(fn); obj != nil && obj.Pkg() == a.pass.Pkg {
		if method := a.prog.FuncValue(obj); method != nil {
			if _, ok := a.sums[method]; ok {
				return method
			}
		}
	}
	return nil
}

// bound returns what a function literal's variable is, wherever the literal is made.
func bound(v *ssa.FreeVar) (all []ssa.Value) {
	parent := v.Parent()
	if parent.Parent() == nil {
		return nil
	}
	for _, block := range parent.Parent().Blocks {
		for _, instr := range block.Instrs {
			if mk, ok := instr.(*ssa.MakeClosure); ok && mk.Fn == parent {
				for i, free := range parent.FreeVars {
					if free == v {
						all = append(all, mk.Bindings[i])
					}
				}
			}
		}
	}
	return all
}

// summaryOf returns the summary of a called function, or nil.
func (a *analysisOf) summaryOf(common *ssa.CallCommon) *Summary {
	fn := common.StaticCallee()
	if fn == nil {
		return nil
	}
	if own := a.own(fn); own != nil {
		return a.sums[own]
	}
	return a.summaryOfObject(objectOf(fn))
}

func (a *analysisOf) isForeign(common *ssa.CallCommon) bool {
	fn := common.StaticCallee()
	return fn != nil && a.own(fn) == nil
}

func (a *analysisOf) summaryOfObject(obj *types.Func) *Summary {
	if obj == nil || obj.Pkg() == nil || obj.Pkg() == a.pass.Pkg || isLibrary(obj.Pkg().Path()) ||
		isOwn(obj.Pkg().Path()) {
		return nil
	}
	s, known := a.imported[obj]
	if !known {
		if fact := new(Summary); a.pass.ImportObjectFact(obj, fact) {
			s = fact.imported()
		}
		a.imported[obj] = s
	}
	return s
}

// isOwn reports whether a package is a part of txonce's libraries, which the analyzers know, and do not judge.
func isOwn(path string) bool {
	rest, ok := strings.CutPrefix(path, pathTxonce+"/")
	if !ok {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	switch first {
	case "adapters", "calls", "consumer", "dedup", "internal", "migrations", "observe", "outbox":
		return true
	}
	return false
}

// identity returns the parameter or the captured variable that a value is, not what was made from it.
func (f *flow) identity(v ssa.Value) Origin {
	var o Origin
	switch v := unwrapped(v).(type) {
	case *ssa.Parameter:
		set(v.Parent().Params, v, &o.Params, nil, false)
	case *ssa.FreeVar:
		set(v.Parent().FreeVars, v, &o.Free, nil, false)
	case *ssa.UnOp:
		return f.identity(v.X)
	case *ssa.Alloc:
		if val := onlyStore(v); val != nil {
			return f.identity(val)
		}
	case *ssa.TypeAssert:
		return f.identity(v.X)
	case *ssa.Extract:
		if assert, ok := v.Tuple.(*ssa.TypeAssert); ok {
			return f.identity(assert.X)
		}
	case *ssa.Call:
		o.Tx = calleeName(&v.Call) == pathTxonce+"/adapters/watermilltx.Tx"
	}
	return o
}

// sameThrough returns an identity of a called function in terms of its caller.
func (f *flow) sameThrough(o Origin, args, bindings []ssa.Value) Origin {
	switch {
	case o.Tx:
		return o
	case o.Params != 0:
		return f.identityOf(o.Params, args)
	case o.Free != 0:
		return f.identityOf(o.Free, bindings)
	}
	return Origin{}
}

func (f *flow) identityOf(set uint64, values []ssa.Value) Origin {
	for i, v := range values {
		if set == 1<<i && v != nil {
			return f.identity(v)
		}
	}
	return Origin{}
}

// onlyStore returns the only value that is ever stored in a variable, or nil.
func onlyStore(alloc *ssa.Alloc) (val ssa.Value) {
	for _, ref := range *alloc.Referrers() {
		if store, ok := ref.(*ssa.Store); ok && store.Addr == alloc {
			if val != nil {
				return nil
			}
			val = store.Val
		}
		if mk, ok := ref.(*ssa.MakeClosure); ok && assigns(mk, alloc) {
			return nil
		}
	}
	return val
}
