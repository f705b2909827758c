package oncecheck

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// handlerTypes have functions that txonce calls in a transaction, their second parameter.
var handlerTypes = []string{
	pathTxonce + "/consumer.Handler", pathTxonce + "/consumer.BatchHandler", pathTxonce + "/adapters/httpidem.Handler",
}

// handlerTakers are functions with an argument that txonce calls in a transaction: which, and which of its parameters
// is the transaction.
var handlerTakers = map[string]struct{ arg, tx int }{
	pathTxonce + "/consumer.JSON":              {0, 1},
	pathTxonce + "/consumer.JSONMessage":       {0, 1},
	pathTxonce + "/consumer.Decode":            {1, 1},
	pathTxonce + "/adapters/pgxstore.Pipeline": {0, 1},
}

// places looks at all places where the package gives a function to txonce, or an ID to a message.
func (a *analysisOf) places() {
	for _, fn := range a.funcs {
		(&flow{analysisOf: a, fn: fn}).wraps()
	}
	for _, fn := range a.funcs {
		f := &flow{analysisOf: a, fn: fn}
		for _, block := range fn.Blocks {
			for _, instr := range block.Instrs {
				switch in := instr.(type) {
				case *ssa.ChangeType:
					switch name := typeName(in.Type()); {
					case slices.Contains(handlerTypes, name):
						f.handler(in.X, 1, placeOf(in))
					case name == pathTxonce+"/consumer.KeyFunc":
						f.keyFunc(in.X, placeOf(in))
					}
				case ssa.CallInstruction:
					f.given(in.Common())
				case *ssa.Store:
					f.storedPlace(in)
					f.storedInField(in)
				}
			}
		}
	}
	a.shaping = true
	for _, fn := range a.funcs {
		(&flow{analysisOf: a, fn: fn}).shaped()
	}
}

// placeOf returns where the source gives away a value that is converted without a conversion being written.
func placeOf(conversion *ssa.ChangeType) token.Pos {
	positions := []token.Pos{conversion.Pos()}
	for _, ref := range *conversion.Referrers() {
		if call, ok := ref.(ssa.CallInstruction); ok {
			positions = append(positions, call.Common().Pos())
		}
		positions = append(positions, ref.Pos())
	}
	if call, ok := conversion.X.(*ssa.Call); ok {
		positions = append(positions, call.Pos())
	}
	return first(append(positions, conversion.Parent().Pos())...)
}

// given looks at the functions among the arguments of a call.
func (f *flow) given(common *ssa.CallCommon) {
	name := calleeName(common)
	if taker, ok := handlerTakers[name]; ok && taker.arg < len(common.Args) {
		f.handler(common.Args[taker.arg], taker.tx, common.Pos())
	}
	if f.isForeign(common) {
		if s := f.summaryOf(common); s != nil {
			for _, t := range s.Takes {
				if t.Within == nowhere && t.Param < len(common.Args) {
					f.handlers(common.Args[t.Param], t.Part, t.Tx, common.Pos())
				}
			}
		}
	}
	switch {
	case name == pathTxonce+"/consumer.KeyOf":
		f.keyFunc(common.Args[0], common.Pos())
	case name == pathTxonce+"/adapters/watermilltx.Tx":
		f.within(f.fn, frame{before: receiver(f.fn)}, nil)
	}
	if method, recv, rest := methodOf(common); recv != nil && method == "InTx" && takesRecords(common) {
		f.handler(rest[len(rest)-1], 0, common.Pos())
	}
}

// takesRecords reports whether a method has a parameter []dedup.Record, and a function as its last.
func takesRecords(common *ssa.CallCommon) bool {
	params := common.Signature().Params()
	if params.Len() < 2 {
		return false
	}
	_, isFunc := params.At(params.Len() - 1).Type().Underlying().(*types.Signature)
	for p := range params.Variables() {
		if s, ok := p.Type().(*types.Slice); ok && isFunc && typeName(s.Elem()) == pathTxonce+"/dedup.Record" {
			return true
		}
	}
	return false
}

// storedPlace looks at what is stored in a field of one of txonce's structs.
func (f *flow) storedPlace(store *ssa.Store) {
	switch typ, field := fieldOf(store.Addr); {
	case typ == pathTxonce+"/calls.Config" && (field == "Done" || field == "Failed"):
		f.handler(store.Val, 1, store.Pos())
	case field == "ID" && (typ == pathTxonce+"/consumer.Message" || typ == pathTxonce+"/dedup.Key"):
		if flow := f.unstable(store.Val); flow.What != "" {
			_, name, _ := cutLast(typ)
			f.reportKey(name+".ID", flow, store.Pos())
		}
	}
}

// fieldOf returns the type and the name of a struct's field, and "" for other addresses.
func fieldOf(addr ssa.Value) (typ, field string) {
	fa, ok := addr.(*ssa.FieldAddr)
	if !ok {
		return "", ""
	}
	t := fa.X.Type().Underlying().(*types.Pointer).Elem()
	return typeName(t), t.Underlying().(*types.Struct).Field(fa.Field).Name()
}

// outgoingID adds the effect of an outgoing message whose ID differs between the runs of its handler.
func (f *flow) outgoingID(store *ssa.Store) {
	if typ, field := fieldOf(store.Addr); typ != pathTxonce+"/outbox.Message" || field != "ID" {
		return
	}
	if flow := f.unstable(store.Val); flow.What != "" && !f.inTest(store.Pos()) {
		pos := first(flow.pos, store.Pos())
		f.keep(Effect{
			Check: CheckKey, Kind: Always, Where: f.where(pos), CtxParam: -1, CtxFree: -1, pos: pos,
			Text: fmt.Sprintf("outbox.Message.ID is made of %s, so a second run of the handler sends another ID, and "+
				"receivers take it for another message; leave ID empty, or make it of what the incoming message says", flow.What),
		})
	}
}

// keyFunc looks at a function that finds keys.
func (f *flow) keyFunc(v ssa.Value, place token.Pos) {
	for _, g := range f.resolve(v) {
		var keys []Flow
		at := place
		switch {
		case g.fn != nil:
			keys = f.sums[g.fn].Keys
		case g.obj != nil && g.ret == nil:
			if s := f.summaryOfObject(g.obj); s != nil {
				keys = s.Keys
			}
		case g.ret != nil:
			keys = g.ret.Keys
		}
		if len(keys) > 0 && keys[0].What != "" {
			f.reportKey("the key", keys[0], at)
		}
	}
}

func (f *flow) reportKey(what string, flow Flow, place token.Pos) {
	pos := first(flow.pos, place)
	if f.inTest(pos) {
		return
	}
	f.report(finding{CheckKey, pos, fmt.Sprintf("%s is made of %s, so two deliveries or two publications of one event "+
		"may have different keys, and both take effect; make it of what the event itself says, such as an order's ID",
		what, flow.What)}, nil)
}

func (f *flow) inTest(pos token.Pos) bool {
	return strings.HasSuffix(f.pass.Fset.Position(pos).Filename, "_test.go")
}

func first(positions ...token.Pos) token.Pos {
	for _, pos := range positions {
		if pos.IsValid() {
			return pos
		}
	}
	return token.NoPos
}
