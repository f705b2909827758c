package oncecheck

import "golang.org/x/tools/go/ssa"

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
