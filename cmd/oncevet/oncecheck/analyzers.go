package oncecheck

import (
	"go/token"
	"reflect"

	"golang.org/x/tools/go/analysis"
)

// Analyzers returns the checks. oncecall reports nothing unless its flag oncecall.on is set.
func Analyzers() []*analysis.Analyzer {
	tx := analyzer(CheckTx, `report work in a handler that is not in the handler's transaction

Statements on sql.DB, pgxpool.Pool, gorm.DB or bun.DB, on what is made of them, the transaction in a go statement, and
BEGIN, COMMIT and ROLLBACK.`)
	shape := tx.Flags.Bool("shape", false,
		"take each function with a context and a transaction for a handler (an experiment)")
	tx.Run = func(pass *analysis.Pass) (any, error) { return nil, show(pass, CheckTx, *shape) }
	call := analyzer(CheckCall, "report calls of net/http and gRPC in a handler; off unless -oncecall.on")
	on := call.Flags.Bool("on", false, "report calls")
	call.Run = func(pass *analysis.Pass) (any, error) {
		if !*on {
			return nil, nil
		}
		return nil, show(pass, CheckCall, false)
	}
	return []*analysis.Analyzer{
		tx,
		analyzer(CheckKey,
			"report keys and IDs that differ between deliveries: offsets, attempts, UUIDs, random numbers, the time"),
		analyzer(CheckCtx, "report context.Background in a handler's statements and in Enqueue"),
		analyzer(CheckRows, "report errors of a handler's statements that nobody reads, and rows without Err"),
		call,
	}
}

// facts summarizes a package's functions and finds the mistakes of all checks.
var facts = &analysis.Analyzer{
	Name:       "oncefacts",
	Doc:        "summarize what functions do in a handler; the other analyzers report it",
	URL:        "https://" + pathTxonce,
	Run:        findAll,
	FactTypes:  []analysis.Fact{new(Summary), new(Keeps)},
	ResultType: reflect.TypeFor[[]Finding](),
}

func analyzer(name, doc string) *analysis.Analyzer {
	a := &analysis.Analyzer{Name: name, Doc: doc, URL: "https://" + pathTxonce, Requires: []*analysis.Analyzer{facts}}
	a.Run = func(pass *analysis.Pass) (any, error) { return nil, show(pass, name, false) }
	return a
}

// show reports the findings of a check.
func show(pass *analysis.Pass, check string, shaped bool) error {
	for _, f := range pass.ResultOf[facts].([]Finding) {
		if f.Check == check && (shaped || !f.shaped) {
			pass.Report(f.Diagnostic)
		}
	}
	return nil
}

// A Finding is a mistake.
type Finding struct {
	Check string
	analysis.Diagnostic
	shaped bool // only -oncetx.shape shows it
}

type finding struct {
	check   string
	pos     token.Pos
	message string
}

func (a *analysisOf) report(f finding, edits []analysis.TextEdit) {
	ignored := a.ignores.at(f.pos)
	if a.found[f] || ignored == ignoredWithReason {
		return
	}
	a.found[f] = true
	if ignored == ignoredWithoutReason {
		f.message += " (//once:ignore needs a reason, as in //once:ignore this table is only a cache)"
	}
	d := analysis.Diagnostic{Pos: f.pos, Category: f.check, Message: f.message}
	if len(edits) > 0 {
		d.SuggestedFixes = []analysis.SuggestedFix{{Message: "Use the handler's transaction", TextEdits: edits}}
	}
	a.findings = append(a.findings, Finding{f.check, d, a.shaping})
}
