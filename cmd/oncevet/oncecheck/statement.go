package oncecheck

import (
	"go/constant"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

const (
	textOutside = " runs outside of the handler's transaction: a rollback does not undo it," +
		" and a second delivery repeats it"
	textEnds = ": txonce begins and ends the handler's transaction, because the message's claim is in it;" +
		" return nil or an error"
	textGo = ": another goroutine uses the handler's transaction, which may end meanwhile;" +
		" do this work before the handler returns"
	textCtx = " gets context.Background, so it ignores the handler's deadline and the message's scope;" +
		" pass the handler's ctx"
	textDropped = ": nobody reads its error, so the handler commits although this failed; return the error"
	textRows    = ": nobody calls Err on these rows, so rows that an error has cut short look complete;" +
		" return rows.Err() after the loop"
	textCall = " calls another system in the handler: a rollback does not undo it, and a second delivery repeats it;" +
		" enqueue the call with package calls, or send consumer.DownstreamKey"
)

// effect returns an Effect at a call.
func (f *flow) effect(in ssa.CallInstruction, check string, kind Kind, on Origin, text string) Effect {
	pos := in.Common().Pos()
	return Effect{
		Check: check, Kind: kind, On: on, Text: f.text(in) + text, Where: f.where(pos), CtxParam: -1, CtxFree: -1, pos: pos,
	}
}

// statement adds the effects of a call that runs SQL.
func (f *flow) statement(in ssa.CallInstruction, st statement) {
	common := in.Common()
	on := f.origin(st.recv)
	if !isOneOf(st.recv.Type(), transactions) {
		e := f.effect(in, CheckTx, Outside, on, textOutside)
		e.Definite = st.pool
		e.Into = f.anyOrigin(slices.DeleteFunc(slices.Clone(arguments(common)),
			func(v ssa.Value) bool { return v == st.recv }))
		if _, isParam := unwrapped(st.recv).(*ssa.Parameter); isParam || !st.pool {
			e.blame = blameCaller
		}
		e.fix = f.toTx(in, st)
		f.keep(e)
	}
	if text, ok := constantText(st.text); ok && endsTransaction(text) {
		f.keep(f.effect(in, CheckTx, InTx, on, " of "+firstWords(text)+textEnds))
	}
	if st.ctx != nil {
		e := f.effect(in, CheckCtx, InTx, on, textCtx)
		e.Begins = st.begins
		f.passCtxOf(e, st.ctx, common.Pos())
	}
	if !st.around { // what fails in a savepoint is undone
		f.results(in, on)
	}
}

// otherCall adds the effects of calls that are no statements.
func (f *flow) otherCall(in ssa.CallInstruction) {
	common := in.Common()
	method, recv, rest := methodOf(common)
	args := arguments(common)
	switch {
	case recv != nil && (method == "Commit" || method == "Rollback") &&
		(isOneOf(recv, transactions) || typeName(recv) == pathGorm+".DB"):
		f.keep(f.effect(in, CheckTx, Itself, f.identity(args[0]), textEnds))
	case recv != nil && method == "Queue" && typeName(recv) == pathPgx+".Batch":
		if text, ok := constantText(rest[0]); ok && endsTransaction(text) {
			f.keep(f.effect(in, CheckTx, InTx, f.origin(args[0]), " of "+firstWords(text)+textEnds))
		}
	case recv != nil && method == "Enqueue" && len(args) >= 4 && strings.HasPrefix(receiverPackage(common), pathTxonce):
		on := f.origin(args[2])
		f.passCtxOf(f.effect(in, CheckCtx, InTx, on, textCtx), args[1], common.Pos())
		f.results(in, on)
	case recv != nil && method == "Scan" && slices.Contains([]string{
		"database/sql.Row", "database/sql.Rows", pathPgx + ".Row", pathPgx + ".Rows",
	}, typeName(recv)):
		f.results(in, f.origin(args[0]))
	case callsAnotherSystem(common, method, recv):
		f.keep(f.effect(in, CheckCall, Always, Origin{}, textCall))
	}
}

func callsAnotherSystem(common *ssa.CallCommon, method string, recv types.Type) bool {
	switch calleeName(common) {
	case "net/http.Get", "net/http.Post", "net/http.PostForm", "net/http.Head":
		return true
	}
	switch typeName(recv) {
	case "net/http.Client":
		return slices.Contains([]string{"Do", "Get", "Post", "PostForm", "Head"}, method)
	case "net/http.RoundTripper", "net/http.Transport":
		return method == "RoundTrip"
	case "google.golang.org/grpc.ClientConn", "google.golang.org/grpc.ClientConnInterface":
		return method == "Invoke" || method == "NewStream"
	}
	params := common.Signature().Params()
	if params.Len() == 0 || !common.Signature().Variadic() || recv == nil {
		return false
	}
	last, ok := params.At(params.Len() - 1).Type().(*types.Slice)
	return ok && typeName(last.Elem()) == "google.golang.org/grpc.CallOption"
}

// executes reports whether a value runs statements, or has a field that does.
func executes(t types.Type, depth int) bool {
	name := typeName(t)
	if isOneOf(t, transactions) || name == pathGorm+".DB" || name == "database/sql.Conn" || name == pathPgx+".Conn" {
		return true
	}
	switch u := types.Unalias(t).Underlying().(type) {
	case *types.Pointer:
		return executes(u.Elem(), depth)
	case *types.Interface:
		for m := range u.Methods() {
			if runsSQL(m) {
				return true
			}
		}
	case *types.Struct:
		for field := range u.Fields() {
			if depth > 0 && executes(field.Type(), depth-1) {
				return true
			}
		}
	}
	return false
}

func constantText(v ssa.Value) (string, bool) {
	c, ok := v.(*ssa.Const)
	if !ok || c.Value == nil || c.Value.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(c.Value), true
}

// firstWords shortens SQL for a message.
func firstWords(text string) string {
	words := strings.Fields(text)
	if len(words) > 4 {
		words = append(words[:4], "…")
	}
	return strings.Join(words, " ")
}

var later = regexp.MustCompile(`(?i)commit|after`)

// runsLater reports whether a function literal is only given to a function such as AfterCommit.
func runsLater(mk *ssa.MakeClosure) bool {
	for _, ref := range *mk.Referrers() {
		in, ok := ref.(ssa.CallInstruction)
		if !ok {
			return false
		}
		if method, _, _ := methodOf(in.Common()); in.Common().Value == mk || !later.MatchString(method) {
			return false
		}
	}
	return true
}
