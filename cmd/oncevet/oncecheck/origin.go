package oncecheck

import (
	"go/types"
	"math/bits"

	"golang.org/x/tools/go/ssa"
)

// An Origin says what a value of a function comes from. The zero Origin is a value that the function made from nothing,
// such as a constant.
type Origin struct {
	Params, Free           uint64 // the parameters (a receiver is the first) and captured variables that it was made of
	MaybeParams, MaybeFree uint64 // those that went into a call whose result it is, when nobody knows what the call does
	Outside                bool   // a package's variable
	Tx                     bool   // the handler's transaction, from watermilltx.Tx
	Unknown                bool
}

// certain reports whether the value may come from something that existed before the function was called.
func (o Origin) certain() bool { return o.Outside || o.Params|o.Free != 0 }

// mayBeOutside reports whether all that the value comes from may have existed before the function was called.
func (o Origin) mayBeOutside() bool { return o.certain() && !o.Unknown }

func (o Origin) join(p Origin) Origin {
	return Origin{
		o.Params | p.Params, o.Free | p.Free, o.MaybeParams | p.MaybeParams, o.MaybeFree | p.MaybeFree,
		o.Outside || p.Outside, o.Tx || p.Tx, o.Unknown || p.Unknown,
	}
}

// A class is what an Origin means in a handler.
type class int

const (
	unclear class = iota
	inTx          // it is the transaction, or was made from it
	outside       // it existed before the transaction
)

// A frame gives the parameters of a handler their meaning.
type frame struct {
	tx     uint64 // the parameters that are the transaction
	before uint64 // those that existed before it: the receiver
}

func (f frame) class(o Origin) class {
	switch {
	case o.Tx, (o.Params|o.MaybeParams)&f.tx != 0:
		return inTx
	case o.Unknown, o.Params&^f.before != 0:
		return unclear
	case o.certain():
		return outside
	}
	return unclear
}

// A walker follows a value back to what it comes from.
type walker struct {
	*flow
	o    Origin
	seen map[visit]bool
}

type visit struct {
	value ssa.Value
	maybe bool
}

// mostVisits ends the search in functions that a program has generated.
const mostVisits = 4000

// origin returns what v comes from.
func (f *flow) origin(v ssa.Value) Origin {
	w := walker{flow: f, seen: map[visit]bool{}}
	w.value(v, false)
	return w.o
}

// anyOrigin returns what may go into a call with these arguments.
func (f *flow) anyOrigin(args []ssa.Value) Origin {
	w := walker{flow: f, seen: map[visit]bool{}}
	for _, arg := range args {
		w.value(arg, true)
	}
	return w.o
}

// translate returns an Origin of a called function in terms of its caller. A parameter without an argument is unknown.
func (f *flow) translate(o Origin, args, bindings []ssa.Value) Origin {
	w := walker{flow: f, seen: map[visit]bool{}}
	w.translated(o, args, bindings, false)
	return w.o
}

func (w *walker) translated(o Origin, args, bindings []ssa.Value, maybe bool) {
	w.o.Outside = w.o.Outside || o.Outside && !maybe
	w.o.Tx = w.o.Tx || o.Tx
	w.o.Unknown = w.o.Unknown || o.Unknown && !maybe
	each := func(set uint64, values []ssa.Value, maybe bool) {
		for ; set != 0; set &= set - 1 {
			if i := bits.TrailingZeros64(set); i < len(values) && values[i] != nil {
				w.value(values[i], maybe)
			} else if !maybe {
				w.o.Unknown = true
			}
		}
	}
	each(o.Params, args, maybe)
	each(o.MaybeParams, args, true)
	each(o.Free, bindings, maybe)
	each(o.MaybeFree, bindings, true)
}

func (w *walker) value(v ssa.Value, maybe bool) {
	if v == nil || w.seen[visit{v, maybe}] || !w.carries(v.Type()) {
		return
	}
	w.seen[visit{v, maybe}] = true
	if len(w.seen) > mostVisits {
		w.o.Unknown = true
		return
	}
	if field := fieldVar(v); w.lent[v] || field != nil && w.lent[field] {
		w.o.Unknown = w.o.Unknown || !maybe
	}
	switch v := v.(type) {
	case *ssa.Parameter:
		set(v.Parent().Params, v, &w.o.Params, &w.o.MaybeParams, maybe)
	case *ssa.FreeVar:
		set(v.Parent().FreeVars, v, &w.o.Free, &w.o.MaybeFree, maybe)
	case *ssa.Global:
		w.o.Outside = w.o.Outside || !maybe
	case *ssa.Const, *ssa.Function, *ssa.Builtin, *ssa.BinOp:
	case *ssa.Alloc, *ssa.MakeMap, *ssa.MakeSlice:
		w.stores(v, maybe)
	case *ssa.MakeClosure:
		for _, b := range v.Bindings {
			w.value(b, maybe)
		}
	case *ssa.Phi:
		for _, edge := range v.Edges {
			w.value(edge, maybe)
		}
	case *ssa.Call:
		w.call(v, 0, maybe)
		w.methods(v)
	case *ssa.Extract:
		if call, ok := v.Tuple.(*ssa.Call); ok {
			w.call(call, v.Index, maybe)
			w.methods(v)
		} else {
			w.operands(v, maybe)
		}
	case *ssa.UnOp, *ssa.FieldAddr, *ssa.Field, *ssa.IndexAddr, *ssa.Index, *ssa.Lookup, *ssa.Slice, *ssa.Convert,
		*ssa.ChangeType, *ssa.ChangeInterface, *ssa.MakeInterface, *ssa.TypeAssert, *ssa.SliceToArrayPointer:
		w.operands(v.(ssa.Instruction), maybe)
	default:
		w.o.Unknown = w.o.Unknown || !maybe
	}
}

func set[V comparable](all []V, v V, certain, maybe *uint64, isMaybe bool) {
	for i, other := range all {
		if other == v && i < 64 {
			if isMaybe {
				*maybe |= 1 << i
			} else {
				*certain |= 1 << i
			}
		}
	}
}

func (w *walker) operands(instr ssa.Instruction, maybe bool) {
	for _, op := range instr.Operands(nil) {
		w.value(*op, maybe)
	}
}

// call follows a result of a call.
func (w *walker) call(call *ssa.Call, result int, maybe bool) {
	common := call.Common()
	args := arguments(common)
	callee := calleeName(common)
	st, isStatement := statementOf(common)
	switch {
	case callee == pathTxonce+"/adapters/watermilltx.Tx":
		w.o.Tx = true
		return
	case isStatement && st.begins && st.pool:
		w.o.Unknown = true // the call itself is reported
		return
	case isBuiltin(common), passesOn[callee]:
		for _, arg := range args {
			w.value(arg, maybe)
		}
		return
	case len(args) > 0 && isLibrary(receiverPackage(common)):
		w.value(args[0], maybe)
		for _, arg := range args[1:] {
			w.value(arg, true)
		}
		return
	}
	if s := w.summaryOf(common); s != nil && result < len(s.Results) {
		w.translated(s.Results[result], args, bindings(common), maybe)
		return
	}
	w.o.Unknown = w.o.Unknown || !maybe
	w.calledWith(common)
}

// carries reports whether a value of type t can contain a transaction or a pool.
func (a *analysisOf) carries(t types.Type) bool {
	if known, ok := a.carrying[t]; ok {
		return known
	}
	a.carrying[t] = false // a recursive type carries what its other parts carry
	result := false
	switch u := types.Unalias(t).Underlying().(type) {
	case *types.Interface:
		result = !types.Identical(t, types.Universe.Lookup("error").Type())
	case *types.Signature, *types.Tuple:
		result = true
	case *types.Pointer:
		result = a.carries(u.Elem())
	case *types.Slice:
		result = a.carries(u.Elem())
	case *types.Array:
		result = a.carries(u.Elem())
	case *types.Chan:
		result = a.carries(u.Elem())
	case *types.Map:
		result = a.carries(u.Elem()) || a.carries(u.Key())
	case *types.Struct:
		for field := range u.Fields() {
			result = result || a.carries(field.Type())
		}
	}
	a.carrying[t] = result
	return result
}
