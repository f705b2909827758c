package oncecheck

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// handler looks at a function that txonce calls in a transaction. tx is the parameter's index, without a receiver.
func (f *flow) handler(v ssa.Value, tx int, place token.Pos) { f.handlers(v, Part{}, tx, place) }

func (f *flow) handlers(v ssa.Value, part Part, tx int, place token.Pos) {
	if f.judged[judgement{v, part, tx}] {
		return
	}
	f.judged[judgement{v, part, tx}] = true
	for _, g := range f.resolvePart(v, part) {
		f.oneHandler(g, tx, place)
	}
}

func (f *flow) oneHandler(g given, tx int, place token.Pos) {
	switch {
	case g.param != nil, g.field != nil:
		f.takes(g, tx, nowhere)
	case g.via != nil:
		if g.as.Within == tx {
			f.handlers(g.via, g.as.Part, g.as.Tx, place)
		}
	case g.fn != nil:
		f.ownHandler(g.fn, tx)
	default:
		s, i, before := g.ret, tx, uint64(0)
		if s == nil {
			s = f.summaryOfObject(g.obj)
			if g.obj.Signature().Recv() != nil {
				i, before = i+1, 1
			}
		}
		if s == nil {
			return
		}
		for _, e := range s.Effects {
			if e.wrong(frame{1 << i, before}) {
				f.report(finding{e.Check, place, fmt.Sprintf("handler %s: %s (at %s)", g.obj.Name(), e.Text, e.Where)}, nil)
			}
		}
	}
}

// ownHandler looks at a handler of this package, and at those that it calls without naming them.
func (f *flow) ownHandler(fn *ssa.Function, tx int) {
	// A method's receiver comes first among the parameters.
	i := len(fn.Params) - fn.Signature.Params().Len() + tx
	h := frame{tx: 1 << i, before: receiver(fn)}
	var param *types.Var
	if i < len(fn.Params) {
		param, _ = fn.Params[i].Object().(*types.Var)
	}
	f.within(fn, h, param)
	in := &flow{analysisOf: f.analysisOf, fn: fn}
	dynamic(fn, func(call ssa.CallInstruction, from, to int) {
		if from == i && h.class(in.origin(call.Common().Value)) != inTx {
			f.handlers(call.Common().Value, called(call), to, call.Common().Pos())
		}
	})
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			if call, ok := instr.(ssa.CallInstruction); ok && call.Common().IsInvoke() {
				in.invoked(call, h)
			}
		}
	}
}

// A judgement is a function that has been looked at as a handler.
type judgement struct {
	fn   ssa.Value
	part Part
	tx   int
}

func receiver(fn *ssa.Function) uint64 {
	if fn.Signature.Recv() != nil {
		return 1
	}
	return 0
}

// within reports the effects that are wrong in a handler of this package.
func (f *flow) within(fn *ssa.Function, h frame, tx *types.Var) {
	for _, e := range f.sums[fn].Effects {
		if !e.wrong(h) {
			continue
		}
		use, edits := "", []analysis.TextEdit(nil)
		if syntax := fn.Syntax(); syntax != nil && syntax.Pos() <= e.pos && e.pos < syntax.End() {
			use, edits = e.fix.apply(f.pass, tx)
		}
		f.reportEffect(e, use, edits)
	}
}

// reportEffect reports a mistake. A call that runs several statements outside of the transaction is one mistake.
func (f *flow) reportEffect(e Effect, use string, edits []analysis.TextEdit) {
	message := e.Text
	if e.Check == CheckTx && e.Kind == Outside {
		if first, ok := f.outside[e.pos]; ok && first != e.Where {
			return
		}
		f.outside[e.pos] = e.Where
		if use == "" {
			use = "the handler's transaction, or what is made from it"
		}
		message += "; use " + use
	}
	f.report(finding{e.Check, e.pos, message}, edits)
}

// shaped takes a function for a handler if its parameters are a context and a transaction.
func (f *flow) shaped() {
	params := f.fn.Params
	i := slices.IndexFunc(params, func(p *ssa.Parameter) bool {
		return isOneOf(p.Type(), transactions) || p.Name() == "tx"
	})
	if i > 0 && i <= 2 && typeName(params[i-1].Type()) == "context.Context" {
		tx, _ := params[i].Object().(*types.Var)
		f.within(f.fn, frame{tx: 1 << i, before: receiver(f.fn)}, tx)
	}
}
