package oncecheck

import (
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// results adds the effects of a statement's results that nobody reads.
func (f *flow) results(in ssa.CallInstruction, on Origin) {
	results := in.Common().Signature().Results()
	if results.Len() == 0 {
		return
	}
	if call, ok := in.(*ssa.Call); ok && drops(call, results) || !ok && isError(results.At(results.Len()-1).Type()) {
		f.keep(f.effect(in, CheckRows, InTx, on, textDropped))
	}
	if call, ok := in.(*ssa.Call); ok {
		if rows := resultOf(call, 0, results); rows != nil && readsWithoutErr(rows) {
			f.keep(f.effect(in, CheckRows, InTx, on, textRows))
		}
	}
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// drops reports whether a call has an error that nothing reads.
func drops(call *ssa.Call, results *types.Tuple) bool {
	last := results.Len() - 1
	if typeName(results.At(last).Type()) == pathPgx+".BatchResults" {
		return onlyCloses(call)
	}
	if !isError(results.At(last).Type()) {
		return false
	}
	err := resultOf(call, last, results)
	return err == nil || len(*err.Referrers()) == 0
}

// onlyCloses reports whether a batch is sent and closed, without reading a result or the error of Close.
func onlyCloses(batch *ssa.Call) bool {
	for _, ref := range *batch.Referrers() {
		in, ok := ref.(ssa.CallInstruction)
		if !ok || !in.Common().IsInvoke() || in.Common().Value != batch || in.Common().Method.Name() != "Close" {
			return false
		}
		if call, ok := in.(*ssa.Call); ok && len(*call.Referrers()) > 0 {
			return false
		}
	}
	return true
}

// resultOf returns a result of a call, or nil if nothing reads it.
func resultOf(call *ssa.Call, i int, results *types.Tuple) ssa.Value {
	if results.Len() == 1 {
		return call
	}
	for _, ref := range *call.Referrers() {
		if e, ok := ref.(*ssa.Extract); ok && e.Index == i {
			return e
		}
	}
	return nil
}

// readsWithoutErr reports whether rows are read to their end here and nobody asks for their error.
func readsWithoutErr(rows ssa.Value) bool {
	if name := typeName(rows.Type()); name != "database/sql.Rows" && name != pathPgx+".Rows" {
		return false
	}
	methods, ok := methodsCalled(rows)
	return ok && slices.Contains(methods, "Next") && !slices.Contains(methods, "Err")
}

// methodsCalled returns the methods that are called on a value, also in function literals that have captured its
// variable. It is not ok if the value goes elsewhere.
func methodsCalled(v ssa.Value) (methods []string, ok bool) {
	for _, ref := range *v.Referrers() {
		switch ref := ref.(type) {
		case ssa.CallInstruction:
			method, recv, rest := methodOf(ref.Common())
			if recv == nil || arguments(ref.Common())[0] != v || slices.Contains(rest, v) {
				return nil, false
			}
			methods = append(methods, method)
		case *ssa.Store:
			variable, isVariable := ref.Addr.(*ssa.Alloc)
			if !isVariable {
				return nil, false
			}
			for _, load := range loads(variable) {
				more, ok := methodsCalled(load)
				if !ok {
					return nil, false
				}
				methods = append(methods, more...)
			}
		default:
			return nil, false
		}
	}
	return methods, true
}

// loads returns the values that are read from a variable, also in function literals that have captured it.
func loads(variable ssa.Value) (all []ssa.Value) {
	for _, ref := range *variable.Referrers() {
		switch ref := ref.(type) {
		case *ssa.UnOp:
			all = append(all, ref)
		case *ssa.MakeClosure:
			for i, b := range ref.Bindings {
				if b == variable {
					all = append(all, loads(ref.Fn.(*ssa.Function).FreeVars[i])...)
				}
			}
		}
	}
	return all
}
