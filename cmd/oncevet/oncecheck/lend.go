package oncecheck

import (
	"go/types"
	"slices"

	"golang.org/x/tools/go/ssa"
)

// lends collects what a function with a transaction stores something in that it has not made itself, such as a struct
// that is locked for one message. What is in there may be the transaction.
func (a *analysisOf) lends() {
	for _, fn := range a.funcs {
		if !hasTransaction(fn) {
			continue
		}
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				switch in := instr.(type) {
				case *ssa.Store:
					if a.carries(in.Val.Type()) {
						a.lend(in.Addr)
					}
				case *ssa.MapUpdate:
					a.lend(in.Map)
				case ssa.CallInstruction:
					// Setters, also of other packages.
					if args := arguments(in.Common()); len(args) > 1 && isSetter(in.Common().Signature()) {
						a.lend(args[0])
					}
				}
			}
		}
	}
}

// hasTransaction reports whether a function, or the one that a literal is in, has a parameter that runs statements.
func hasTransaction(fn *ssa.Function) bool {
	return isInTransaction(fn) ||
		slices.ContainsFunc(fn.Params, func(p *ssa.Parameter) bool { return executes(p.Type(), 0) })
}

// isSetter reports whether a function may keep a transaction that it gets.
func isSetter(sig *types.Signature) bool {
	for p := range sig.Params().Variables() {
		if executes(p.Type(), 0) {
			return isQuiet(sig)
		}
	}
	return false
}

// isQuiet reports whether a function can only set something: it has no context and no results.
func isQuiet(sig *types.Signature) bool {
	for p := range sig.Params().Variables() {
		if typeName(p.Type()) == "context.Context" {
			return false
		}
	}
	return sig.Results().Len() == 0
}

// lend notes all fields on the way to an address, and the variable that the way begins with.
func (a *analysisOf) lend(addr ssa.Value) {
	var path []any
	for v := addr; v != nil; {
		if field := fieldVar(v); field != nil {
			path = append(path, field)
		}
		switch in := v.(type) {
		case *ssa.FieldAddr:
			v = in.X
		case *ssa.Field:
			v = in.X
		case *ssa.IndexAddr:
			v = in.X
		case *ssa.Lookup:
			v = in.X
		case *ssa.UnOp:
			v = in.X
			if alloc, ok := v.(*ssa.Alloc); ok {
				v = onlyStore(alloc)
			}
		case *ssa.Alloc, *ssa.MakeMap, *ssa.MakeSlice:
			return
		case *ssa.Parameter:
			if isQuiet(in.Parent().Signature) { // whoever calls a setter lends
				return
			}
			path, v = append(path, v), nil
		default:
			path, v = append(path, v), nil
		}
	}
	for _, p := range path {
		a.lent[p] = true
	}
}

// guardsOf returns what a function compares with a transaction or asks for one. It may use a pool only without one.
func guardsOf(fn *ssa.Function) (all []ssa.Value) {
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			switch in := instr.(type) {
			case *ssa.BinOp:
				if executes(in.X.Type(), 0) || executes(in.Y.Type(), 0) {
					all = append(all, in.X, in.Y)
				}
			case *ssa.TypeAssert:
				if executes(in.AssertedType, 0) {
					all = append(all, in.X)
				}
			case *ssa.Call:
				if in.Call.IsInvoke() && in.Call.Method.Name() == "Value" && typeName(in.Call.Value.Type()) == "context.Context" {
					all = append(all, in.Call.Value)
				}
			}
		}
	}
	return all
}
