package oncecheck

import (
	"go/types"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ssa"
)

// What the analyzers know about other packages.
const (
	pathTxonce = "github.com/txonce/txonce"
	pathPgx    = "github.com/jackc/pgx/v5"
	pathPool   = pathPgx + "/pgxpool"
	pathGorm   = "gorm.io/gorm"
	pathBun    = "github.com/uptrace/bun"
	pathSQLX   = "github.com/jmoiron/sqlx"
)

// pools are types that are never a handler's transaction, and run each statement in a transaction of its own.
var pools = []string{"database/sql.DB", pathPool + ".Pool", pathBun + ".DB", pathSQLX + ".DB"}

// transactions are types that are always a transaction.
var transactions = []string{
	"database/sql.Tx", pathPgx + ".Tx", pathPool + ".Tx", pathBun + ".Tx", pathSQLX + ".Tx",
}

// passesOn has functions whose result is what their arguments are.
var passesOn = map[string]bool{
	"context.WithCancel": true, "context.WithCancelCause": true, "context.WithDeadline": true,
	"context.WithTimeout": true, "context.WithTimeoutCause": true, "context.WithValue": true,
	"context.WithoutCancel": true, pathGorm + ".G": true,
	pathTxonce + "/adapters/sqlstore/gormstore.TxOf": true,
}

// isLibrary reports whether the methods of a package return what was made from their receiver.
func isLibrary(path string) bool {
	return path == "database/sql" || path == pathGorm || path == pathBun || path == pathSQLX || path == pathPgx ||
		strings.HasPrefix(path, pathPgx+"/")
}

// sqlMethods run SQL, or begin a transaction that does.
var sqlMethods = []string{
	"Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext", "Prepare", "PrepareContext",
	"SendBatch", "CopyFrom", "Begin", "BeginTx", "Acquire", "AcquireFunc", "AcquireAllIdle", "RunInTx",
	// sqlx
	"Get", "GetContext", "Select", "SelectContext", "NamedExec", "NamedExecContext", "NamedQuery", "NamedQueryContext",
	"Queryx", "QueryxContext", "QueryRowx", "QueryRowxContext", "MustExec", "MustExecContext", "Beginx", "BeginTxx",
}

var bunFinishers = []string{"Exec", "Scan", "Count", "Exists", "Rows", "ScanAndCount"}

var gormFinishers = []string{
	"Create", "CreateInBatches", "Save", "First", "Take", "Last", "Find", "FindInBatches", "FirstOrInit",
	"FirstOrCreate", "Update", "Updates", "UpdateColumn", "UpdateColumns", "Delete", "Count", "Row", "Rows", "Scan",
	"Pluck", "Exec", "Transaction", "Begin",
}

// A statement is a call that runs SQL or begins a transaction.
type statement struct {
	recv   ssa.Value
	ctx    ssa.Value // nil if it has none
	text   ssa.Value // nil if it has none
	method string
	pool   bool // recv is never a handler's transaction
	begins bool
	around bool // it begins a transaction around a function
}

// statementOf reports whether a call is a statement.
func statementOf(common *ssa.CallCommon) (st statement, ok bool) {
	method, recvType, rest := methodOf(common)
	switch calleeName(common) {
	case pathPgx + ".BeginFunc", pathPgx + ".BeginTxFunc":
		return statement{
			recv: common.Args[1], ctx: common.Args[0], method: method, begins: true, around: true,
			pool: isOneOf(unwrapped(common.Args[1]).Type(), pools),
		}, true
	}
	if recvType == nil {
		return statement{}, false
	}
	name := typeName(recvType)
	pkg, typ, _ := cutLast(name)
	switch {
	case isOneOf(recvType, pools), isOneOf(recvType, transactions), name == "database/sql.Conn",
		name == pathPgx+".Conn", name == pathPool+".Conn", name == pathBun+".Conn":
		ok = slices.Contains(sqlMethods, method) || method == "Conn" && isOneOf(recvType, pools)
	case name == "database/sql.Stmt":
		ok = slices.Contains([]string{"Exec", "ExecContext", "Query", "QueryContext", "QueryRow", "QueryRowContext"}, method)
	case pkg == pathGorm:
		ok = slices.Contains(gormFinishers, method)
	case pkg == pathBun && strings.HasSuffix(typ, "Query"):
		ok = slices.Contains(bunFinishers, method)
	case common.IsInvoke():
		ok = runsSQL(common.Method)
	}
	if !ok {
		return statement{}, false
	}
	st = statement{recv: arguments(common)[0], method: method, pool: isOneOf(recvType, pools)}
	st.begins = strings.HasPrefix(method, "Begin") || strings.HasPrefix(method, "Acquire") || method == "RunInTx" ||
		method == "Transaction" || method == "Conn"
	st.around = method == "RunInTx" || method == "Transaction"
	if pkg == pathGorm {
		st.ctx = gormContext(st.recv)
	}
	for _, arg := range rest {
		switch {
		case st.ctx == nil && typeName(arg.Type()) == "context.Context":
			st.ctx = arg
		case st.text == nil && isString(arg.Type()):
			st.text = arg
		}
	}
	return st, true
}

// gormContext returns the context that a chain such as tx.WithContext(ctx).Where(…) has got, or nil.
func gormContext(v ssa.Value) ssa.Value {
	for {
		call, ok := v.(*ssa.Call)
		if !ok || receiverPackage(&call.Call) != pathGorm {
			return nil
		}
		if method, _, rest := methodOf(&call.Call); method == "WithContext" {
			return rest[0]
		}
		v = arguments(&call.Call)[0]
	}
}

// runsSQL reports whether a method of an interface looks like those of pgx and database/sql: sqlc's DBTX, bun's IDB.
func runsSQL(m *types.Func) bool {
	if !slices.Contains([]string{
		"Exec", "Query", "QueryRow", "ExecContext", "QueryContext", "QueryRowContext", "PrepareContext",
	}, m.Name()) {
		return false
	}
	params := m.Signature().Params()
	return params.Len() >= 2 && typeName(params.At(0).Type()) == "context.Context" && isString(params.At(1).Type())
}

// methodOf returns a called method or function, the type of its receiver, and the arguments behind the receiver.
func methodOf(common *ssa.CallCommon) (name string, recv types.Type, rest []ssa.Value) {
	if common.IsInvoke() {
		return common.Method.Name(), common.Value.Type(), common.Args
	}
	fn := common.StaticCallee()
	if fn == nil {
		return "", nil, common.Args
	}
	if r := fn.Signature.Recv(); r != nil && len(common.Args) > 0 {
		return fn.Name(), r.Type(), common.Args[1:]
	}
	return fn.Name(), nil, common.Args
}

// calleeName returns the path and the name of a called function, and "" for methods.
func calleeName(common *ssa.CallCommon) string {
	fn := common.StaticCallee()
	if fn == nil || fn.Signature.Recv() != nil {
		return ""
	}
	if obj := objectOf(fn); obj != nil && obj.Pkg() != nil {
		return obj.Pkg().Path() + "." + obj.Name()
	}
	return ""
}

// receiverPackage returns the package of a called method, and "" for functions.
func receiverPackage(common *ssa.CallCommon) string {
	_, recv, _ := methodOf(common)
	if recv == nil {
		return ""
	}
	if common.IsInvoke() && common.Method.Pkg() != nil {
		return common.Method.Pkg().Path()
	}
	pkg, _, _ := cutLast(typeName(recv))
	return pkg
}

// objectOf returns the declaration of a function, of its generic form if it has one.
func objectOf(fn *ssa.Function) *types.Func {
	if origin := fn.Origin(); origin != nil {
		fn = origin
	}
	obj, _ := fn.Object().(*types.Func)
	if obj == nil {
		return nil
	}
	return obj.Origin()
}

// typeName returns the path and the name of a type or of what it points to: "database/sql.DB".
func typeName(t types.Type) string {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}
	return named.Obj().Pkg().Path() + "." + named.Obj().Name()
}

func isOneOf(t types.Type, names []string) bool { return slices.Contains(names, typeName(t)) }

func isString(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Kind() == types.String
}

func cutLast(name string) (before, after string, ok bool) {
	i := strings.LastIndex(name, ".")
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// unwrapped removes conversions to interfaces.
func unwrapped(v ssa.Value) ssa.Value {
	for {
		switch x := v.(type) {
		case *ssa.MakeInterface:
			v = x.X
		case *ssa.ChangeInterface:
			v = x.X
		case *ssa.ChangeType:
			v = x.X
		default:
			return v
		}
	}
}

var (
	comments = regexp.MustCompile(`(?s)/\*.*?\*/|--[^\n]*`)
	alone    = regexp.MustCompile(`(?i)^\s*(BEGIN|COMMIT|ROLLBACK|END|ABORT)\s*$`)
	more     = regexp.MustCompile(`(?i)^\s*(BEGIN|COMMIT|ROLLBACK|END|ABORT|START|PREPARE)\s+` +
		`(WORK|TRANSACTION|AND|ISOLATION|READ|DEFERRED|IMMEDIATE|EXCLUSIVE|PREPARED)\b`)
	toSavepoint = regexp.MustCompile(`(?i)^\s*ROLLBACK\s+((WORK|TRANSACTION)\s+)?TO\b`)
	creates     = regexp.MustCompile(`(?i)^\s*(CREATE|ALTER)\b`)
)

// endsTransaction reports whether SQL begins or ends a transaction. ROLLBACK TO a savepoint does not.
func endsTransaction(text string) bool {
	parts := []string{text}
	if !strings.ContainsAny(text, `'"$`) { // otherwise a semicolon may be within a string or a function's body
		text = comments.ReplaceAllString(text, " ")
		if parts = strings.Split(text, ";"); creates.MatchString(text) {
			return false // perhaps of a function: BEGIN ATOMIC …; END
		}
	}
	return slices.ContainsFunc(parts, func(part string) bool {
		part = strings.TrimRight(comments.ReplaceAllString(part, " "), "; \t\n")
		return !toSavepoint.MatchString(part) && (alone.MatchString(part) || more.MatchString(part))
	})
}
