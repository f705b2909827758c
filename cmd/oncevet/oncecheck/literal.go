package oncecheck

import "golang.org/x/tools/go/ssa"

// closure adds the effects of a function literal, as if it was called where it is made.
func (f *flow) closure(mk *ssa.MakeClosure) {
	fn := mk.Fn.(*ssa.Function)
	s := f.sums[fn]
	if runsLater(mk) {
		return
	}
	if s == nil {
		f.methodValue(mk)
		return
	}
	recv := beginner(mk)
	for _, e := range s.Effects {
		itself, params := e.On, e.On.Params|e.On.MaybeParams
		e = e.through(func(o Origin) Origin { return f.translate(o, nil, mk.Bindings) })
		on := e.On
		if e.Kind == Itself {
			on = f.sameThrough(itself, nil, mk.Bindings)
		} else if recv != nil && params != 0 {
			// The literal's parameter is a transaction within recv, as in pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error …).
			from := f.anyOrigin([]ssa.Value{recv})
			on.MaybeParams, on.MaybeFree, on.Tx = on.MaybeParams|from.MaybeParams, on.MaybeFree|from.MaybeFree, on.Tx || from.Tx
		}
		e.On = on
		e.Into = f.translate(Origin{MaybeFree: e.Into.Free | e.Into.MaybeFree, Tx: e.Into.Tx}, nil, mk.Bindings)
		if e.Kind == PassesCtx {
			if e.CtxFree < 0 || e.CtxFree >= len(mk.Bindings) {
				continue
			}
			f.passCtxOf(e, mk.Bindings[e.CtxFree], e.pos)
			continue
		}
		f.keep(e)
	}
}

// methodValue adds the effects of a method of this package as if it was called where its value is made.
func (f *flow) methodValue(mk *ssa.MakeClosure) {
	own := f.own(mk.Fn.(*ssa.Function))
	if own == nil {
		return
	}
	for _, e := range f.sums[own].Effects {
		if e.Kind == Itself {
			e.On = f.sameThrough(e.On, mk.Bindings, nil)
		} else {
			e = e.through(func(o Origin) Origin { return f.translate(o, mk.Bindings, nil) })
		}
		e.Into = f.translate(Origin{MaybeParams: e.Into.Params | e.Into.MaybeParams, Tx: e.Into.Tx}, mk.Bindings, nil)
		if e.Kind != PassesCtx {
			f.keep(e)
		}
	}
}

// beginner returns what a call begins a transaction on that it gives to a function literal.
func beginner(mk *ssa.MakeClosure) ssa.Value {
	for _, ref := range *mk.Referrers() {
		if call, ok := ref.(ssa.CallInstruction); ok {
			if st, ok := statementOf(call.Common()); ok && st.begins {
				return st.recv
			}
		}
	}
	return nil
}
