package oncecheck

import (
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// goroutine adds the effect of a go statement, or of a call such as errgroup's Go, that gives away the transaction. A
// function that waits for goroutines may be right.
func (f *flow) goroutine(in ssa.CallInstruction) {
	var values []ssa.Value
	pos := in.Common().Pos()
	switch goes, isGo := in.(*ssa.Go); {
	case isGo:
		pos = goes.Pos()
		values = append(arguments(in.Common()), bindings(in.Common())...)
	case startsGoroutine(in.Common()):
		values = in.Common().Args
	}
	var on Origin
	for _, v := range values {
		if mk, ok := v.(*ssa.MakeClosure); ok {
			for _, b := range mk.Bindings {
				if executes(b.Type(), 3) {
					on = on.join(f.anyOrigin([]ssa.Value{b}))
				}
			}
		} else if isFunc(v) {
			o := f.origin(v)
			on = on.join(Origin{Params: o.Params, Free: o.Free, Tx: o.Tx})
		} else if executes(v.Type(), 3) {
			on = on.join(f.anyOrigin([]ssa.Value{v}))
		}
	}
	if on != (Origin{}) {
		e := f.effect(in, CheckTx, InTx, on, textGo)
		e.Goes = !runsAlone(in.Common())
		if pos != in.Common().Pos() {
			e.Text, e.pos = "go "+e.Text, pos
		}
		f.keep(e)
	}
}

// starters run a function in another goroutine. Whoever has a group can wait for it.
var starters = []string{
	"golang.org/x/sync/errgroup.Group.Go", "golang.org/x/sync/errgroup.Group.TryGo", "sync.WaitGroup.Go",
	"github.com/sourcegraph/conc.WaitGroup.Go", "github.com/sourcegraph/conc/pool.Pool.Go",
	"github.com/sourcegraph/conc/pool.ErrorPool.Go", "github.com/sourcegraph/conc/pool.ContextPool.Go",
}

func startsGoroutine(common *ssa.CallCommon) bool {
	if runsAlone(common) {
		return true
	}
	method, recv, _ := methodOf(common)
	return recv != nil && slices.Contains(starters, typeName(recv)+"."+method) && isLocal(arguments(common)[0])
}

// runsAlone reports whether a call starts a goroutine that nobody can wait for.
func runsAlone(common *ssa.CallCommon) bool {
	name := calleeName(common)
	return name == "time.AfterFunc" || name == "context.AfterFunc"
}

// isLocal reports whether a group is made in the function that uses it.
func isLocal(group ssa.Value) bool {
	switch v := group.(type) {
	case *ssa.Alloc, *ssa.Extract, *ssa.Call:
		return true
	case *ssa.UnOp:
		return isLocal(v.X)
	}
	return false
}

// waits reports whether a function waits for a group, or receives from a channel.
func waits(fn *ssa.Function) bool {
	for _, block := range fn.Blocks {
		for _, instr := range block.Instrs {
			switch in := instr.(type) {
			case *ssa.UnOp:
				if in.Op == token.ARROW {
					return true
				}
			case *ssa.Select:
				return true
			case ssa.CallInstruction:
				if method, _, _ := methodOf(in.Common()); strings.HasPrefix(method, "Wait") {
					return true
				}
			}
		}
	}
	return false
}
