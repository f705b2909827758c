package oncecheck

import (
	"fmt"
	"go/token"
	"slices"
)

// The checks.
const (
	CheckTx   = "oncetx"
	CheckKey  = "oncekey"
	CheckCtx  = "oncectx"
	CheckRows = "oncerows"
	CheckCall = "oncecall"
)

// A Kind says in which handlers an Effect is a mistake.
type Kind int

const (
	Outside   Kind = iota // a statement: on something that existed before the transaction
	InTx                  // an act that is wrong on the transaction, or on what was made from it
	Itself                // an act that is wrong on the transaction itself, and right on a savepoint
	Always                // an act that is wrong wherever it is
	PassesCtx             // a statement or Enqueue with a context that the caller chooses; it is no mistake in itself
)

// An Effect is something that a function does and that may be a mistake in a handler. Its fields are exported for gob.
type Effect struct {
	Check string
	Kind  Kind
	On    Origin // what it acts on
	Into  Origin // what else goes into the call: with the transaction among it, the callee may use that
	// Definite says that a statement runs on a pool, which is no transaction whatever it comes from.
	Definite bool
	Text     string // the message, which begins with the call
	Where    string // file:line of the act
	Foreign  bool   // Text names the act's package and Where already
	CtxParam int    // of PassesCtx: the parameter; -1: none
	CtxFree  int    // of PassesCtx: the captured variable; -1: none
	Begins   bool   // of PassesCtx: the statement begins a savepoint

	pos   token.Pos // where to report it; not set in facts
	blame blame
	fix   *fix
}

// blame says whose mistake a statement on a wrong value is.
type blame int

const (
	blameStatement blame = iota
	blameCaller          // the caller has given the function the wrong database
)

// A Summary is what callers must know about a function.
type Summary struct {
	Effects []Effect
	Results []Origin
	Keys    []Flow   // of each result
	Returns *Summary // of a function that it returns: its effects, and its keys; its captured variables are outside
	Takes   []Take   // its parameters that become handlers
}

// A Take is a parameter that is a function and becomes a handler, or that a handler calls with its transaction.
type Take struct {
	Param int // the function
	Tx    int // which of the function's parameters is the transaction
	// Within is the parameter that is the transaction of the function that is returned, such as middleware, and that
	// calls Param. It is -1 if the function is given to txonce here.
	Within int
}

// AFact makes a Summary a fact.
func (*Summary) AFact() {}

func (s *Summary) String() string { return fmt.Sprintf("%d effects", len(s.Effects)) }

// imported returns a copy without what has a meaning only in the package that made s. golangci-lint does not encode
// facts: they arrive with it, and packages share them.
func (s *Summary) imported() *Summary {
	if s == nil {
		return nil
	}
	copied := *s // with each field that somebody adds
	c := &copied
	c.Effects, c.Keys, c.Returns = slices.Clone(s.Effects), slices.Clone(s.Keys), s.Returns.imported()
	for i := range c.Effects {
		e := &c.Effects[i]
		e.pos, e.blame, e.fix = token.NoPos, blameCaller, nil
	}
	for i := range c.Keys {
		c.Keys[i].pos = token.NoPos
	}
	return c
}

func (s *Summary) empty() bool {
	if len(s.Effects) > 0 || len(s.Takes) > 0 || s.Returns != nil {
		return false
	}
	for _, r := range s.Results {
		if !r.Unknown {
			return false
		}
	}
	for _, k := range s.Keys {
		if k.What != "" || k.Params != 0 {
			return false
		}
	}
	return true
}

// same identifies effects that would be reported as one.
type same struct {
	check string
	kind  Kind
	pos   token.Pos
	on    Origin
	where string
	ctx   [2]int
}

func (e Effect) same() same {
	return same{e.Check, e.Kind, e.pos, e.On, e.Where, [2]int{e.CtxParam, e.CtxFree}}
}

// wrong reports whether an effect is a mistake in a handler.
func (e Effect) wrong(h frame) bool {
	on := h.class(e.On)
	switch e.Kind {
	case Always:
		return true
	case InTx:
		return on == inTx
	case Itself:
		return on == inTx
	case Outside:
		// What holds a pool may hold the transaction too, such as a struct that was made for one message.
		return e.Definite || on == outside && h.class(e.Into) != inTx
	case PassesCtx:
	}
	return false
}
