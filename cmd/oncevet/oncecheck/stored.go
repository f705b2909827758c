package oncecheck

import "golang.org/x/tools/go/ssa"

// stores follows what is stored in a variable, in its fields or in its elements.
func (w *walker) stores(addr ssa.Value, maybe bool) {
	if addr.Referrers() == nil {
		return
	}
	for _, ref := range *addr.Referrers() {
		switch ref := ref.(type) {
		case *ssa.Store:
			if ref.Addr == addr {
				w.value(ref.Val, maybe)
			}
		case *ssa.MapUpdate:
			if ref.Map == addr {
				w.value(ref.Value, maybe)
			}
		case *ssa.FieldAddr:
			w.stores(ref, maybe)
		case *ssa.IndexAddr:
			w.stores(ref, maybe)
		case *ssa.MakeClosure:
			if assigns(ref, addr) {
				w.o.Unknown = true
			}
		case ssa.CallInstruction:
			w.calledWith(ref.Common())
		}
	}
}

// calledWith follows what goes into a call that may change what it gets, such as r.Use(tx) or option(&r).
func (w *walker) calledWith(common *ssa.CallCommon) {
	for _, arg := range arguments(common) {
		w.value(arg, true)
	}
	if !common.IsInvoke() && common.StaticCallee() == nil {
		w.value(common.Value, true)
	}
}

// methods follows what the methods get that are called on a value that a call has returned.
func (w *walker) methods(v ssa.Value) {
	for _, ref := range *v.Referrers() {
		in, ok := ref.(ssa.CallInstruction)
		if !ok || isLibrary(receiverPackage(in.Common())) {
			continue
		}
		if _, recv, _ := methodOf(in.Common()); recv != nil && arguments(in.Common())[0] == v {
			w.calledWith(in.Common())
		}
	}
}

// assigns reports whether a function literal assigns to a variable that it has captured.
func assigns(closure *ssa.MakeClosure, addr ssa.Value) bool {
	for i, b := range closure.Bindings {
		if b != addr {
			continue
		}
		for _, ref := range *closure.Fn.(*ssa.Function).FreeVars[i].Referrers() {
			if _, ok := ref.(*ssa.Store); ok {
				return true
			}
		}
	}
	return false
}

// arguments returns the arguments of a call, with the receiver first, also for a method of an interface.
func arguments(common *ssa.CallCommon) []ssa.Value {
	if common.IsInvoke() {
		return append([]ssa.Value{common.Value}, common.Args...)
	}
	return common.Args
}

func bindings(common *ssa.CallCommon) []ssa.Value {
	if closure, ok := common.Value.(*ssa.MakeClosure); ok {
		return closure.Bindings
	}
	return nil
}

func isBuiltin(common *ssa.CallCommon) bool {
	_, ok := common.Value.(*ssa.Builtin)
	return ok
}
