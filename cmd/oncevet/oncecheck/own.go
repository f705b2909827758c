package oncecheck

import (
	"go/types"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// declared returns a function, or the method of a method value.
func (a *analysisOf) declared(fn *ssa.Function) []given {
	if fn == nil {
		return nil
	}
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
