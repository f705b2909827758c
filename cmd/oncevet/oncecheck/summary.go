package oncecheck

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ssa"
)

// analysisOf is the work on one package.
type analysisOf struct {
	pass     *analysis.Pass
	prog     *ssa.Program
	funcs    []*ssa.Function // with bodies, also function literals and the initialization of variables
	sums     map[*ssa.Function]*Summary
	imported map[*types.Func]*Summary // nil: it has none
	carrying map[types.Type]bool
	calls    map[token.Pos]*ast.CallExpr // by the position of the left parenthesis
	ignores  *ignores
	found    map[finding]bool
	judged   map[judgement]bool
	outside  map[token.Pos]string // the first statement that was reported at a position
	keeps    map[*types.Var]*Keeps
	lent     map[any]bool // fields and variables that may contain a transaction, see lends
	findings []Finding
	shaping  bool // findings are shown by -oncetx.shape only
}

// flow is the work on one function.
type flow struct {
	*analysisOf
	fn    *ssa.Function
	out   *Summary
	guard []ssa.Value // that the function compares, or asks whether they are a transaction
	have  map[same]bool
}

// mostRounds and mostEffects bound the work on functions that call each other in a circle.
const (
	mostRounds  = 20
	mostEffects = 500
)

// summarize writes the summaries of all functions of the package. A function that calls another one again and again
// takes over its effects, until nothing is added.
func (a *analysisOf) summarize() {
	for range mostRounds {
		changed := false
		for _, fn := range a.funcs {
			f := &flow{analysisOf: a, fn: fn, out: &Summary{}, guard: guardsOf(fn), have: map[same]bool{}}
			f.summarize()
			before := a.sums[fn]
			if before == nil || len(before.Effects) != len(f.out.Effects) ||
				!slices.Equal(before.Results, f.out.Results) || !slices.EqualFunc(before.Keys, f.out.Keys, Flow.equal) {
				changed = true
			}
			a.sums[fn] = f.out
		}
		if !changed {
			return
		}
	}
}

func (f *flow) summarize() {
	for _, block := range f.fn.Blocks {
		for _, instr := range block.Instrs {
			switch in := instr.(type) {
			case ssa.CallInstruction:
				f.call(in)
			case *ssa.MakeClosure:
				f.closure(in)
			case *ssa.Store:
				f.outgoingID(in)
			case *ssa.Return:
				f.returns(in)
			}
		}
	}
}

func (f *flow) returns(r *ssa.Return) {
	for len(f.out.Results) < len(r.Results) {
		f.out.Results = append(f.out.Results, Origin{})
		f.out.Keys = append(f.out.Keys, Flow{})
	}
	for i, v := range r.Results {
		w := walker{flow: f, o: f.out.Results[i], seen: map[visit]bool{}}
		w.value(v, false)
		f.out.Results[i] = w.o
		f.out.Keys[i] = f.out.Keys[i].join(f.unstable(v))
	}
	if len(r.Results) == 0 {
		return
	}
	for _, fn := range f.resolve(r.Results[0]) {
		s := f.sums[fn.fn]
		if s == nil || fn.fn == f.fn {
			continue
		}
		if f.out.Returns == nil {
			f.out.Returns = &Summary{}
		}
		for _, e := range s.Effects {
			e = e.through(freed)
			e.Into = freed(e.Into)
			f.out.Returns.Effects = append(f.out.Returns.Effects, e)
		}
		f.out.Returns.Keys = append(f.out.Returns.Keys, s.Keys...)
	}
}

// freed returns an Origin without captured variables: for whoever calls a function that was returned, they are outside.
func freed(o Origin) Origin {
	o.Outside = o.Outside || o.Free != 0
	o.Free, o.MaybeFree = 0, 0
	return o
}

func (f *flow) add(e Effect) {
	if e.Check != "" && f.ignores.at(e.pos) == ignoredWithReason || len(f.out.Effects) >= mostEffects {
		return
	}
	if key := e.same(); !f.have[key] {
		f.have[key] = true
		f.out.Effects = append(f.out.Effects, e)
	}
}

// called adds the effects of a call.
func (f *flow) call(in ssa.CallInstruction) {
	common := in.Common()
	if st, ok := statementOf(common); ok {
		f.statement(in, st)
	} else {
		f.otherCall(in)
	}
	f.goroutine(in)
	s := f.summaryOf(common)
	if s == nil {
		return
	}
	args, bound, foreign := arguments(common), bindings(common), f.isForeign(common)
	for _, e := range s.Effects {
		f.lift(e, in, args, bound, foreign)
	}
	f.droppedOf(s, in, args, bound)
}

// droppedOf adds the effect of a helper that runs statements and whose error nobody reads. A helper that makes a
// savepoint undoes what fails.
func (f *flow) droppedOf(s *Summary, in ssa.CallInstruction, args, bound []ssa.Value) {
	results := in.Common().Signature().Results()
	if results.Len() == 0 || !isError(results.At(results.Len()-1).Type()) ||
		slices.ContainsFunc(s.Effects, func(e Effect) bool { return e.Begins }) {
		return
	}
	switch in := in.(type) {
	case *ssa.Go:
		return
	case *ssa.Call:
		if !drops(in, results) {
			return
		}
	}
	for _, e := range s.Effects {
		if e.Kind == PassesCtx {
			f.keep(f.effect(in, CheckRows, InTx, f.translate(e.On, args, bound), textDropped))
		}
	}
}

// lift adds an effect of a called function, in terms of the caller.
func (f *flow) lift(e Effect, in ssa.CallInstruction, args, bound []ssa.Value, foreign bool) {
	byCaller := e.Kind == Outside && e.blame == blameCaller && e.On.Params != 0
	if e.Kind == Itself {
		e.On = f.sameThrough(e.On, args, bound)
	} else {
		e = e.through(func(o Origin) Origin { return f.translate(o, args, bound) })
	}
	e.Into = f.translate(Origin{
		MaybeParams: e.Into.Params | e.Into.MaybeParams,
		MaybeFree:   e.Into.Free | e.Into.MaybeFree, Tx: e.Into.Tx,
	}, args, bound)
	pos := in.Common().Pos()
	if foreign || byCaller {
		e.pos, e.fix = pos, nil
	}
	if byCaller {
		e.Text = f.text(in) + " (" + e.Where + ")" + textOutside
		e.fix = f.withTx(in)
	} else if foreign && !e.Foreign {
		e.Text, e.Foreign = f.text(in)+": "+e.Text+" ("+e.Where+")", true
	}
	if e.Kind == PassesCtx {
		f.passCtx(e, in, args, bound)
		return
	}
	f.keep(e)
}

// keep adds an effect if it can be a mistake in some handler.
func (f *flow) keep(e Effect) {
	if e.Goes && waits(f.fn) {
		return
	}
	switch e.Kind {
	case Outside:
		for _, v := range f.guard {
			e.Guarded, e.Guard = true, e.Guard.join(f.origin(v))
		}
		if e.Guarded && !e.Guard.mayBeOutside() || !e.Definite && !e.On.mayBeOutside() {
			return
		}
	case InTx, Itself:
		if e.On == (Origin{}) || e.On == (Origin{Unknown: true}) {
			return
		}
	case Always, PassesCtx:
	}
	f.add(e)
}
