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
	// Guarded says that a statement may run only without a transaction: the function asks whether Guard is one.
	Guarded  bool
	Guard    Origin
	Text     string // the message, which begins with the call
	Where    string // file:line of the act
	Foreign  bool   // Text names the act's package and Where already
	CtxParam int    // of PassesCtx: the parameter; -1: none
	CtxFree  int    // of PassesCtx: the captured variable; -1: none
	Begins   bool   // of PassesCtx: the statement begins a savepoint
	Goes     bool   // it is in a goroutine that a caller may wait for

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
	guard Origin
	ctx   [2]int
}

func (e Effect) same() same {
	return same{e.Check, e.Kind, e.pos, e.On, e.Where, e.Guard, [2]int{e.CtxParam, e.CtxFree}}
}

// through returns an effect with its origins in terms of another function.
func (e Effect) through(translate func(Origin) Origin) Effect {
	e.On = translate(e.On)
	if e.Guarded {
		e.Guard = translate(e.Guard)
	}
	return e
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
		if e.Guarded && h.class(e.Guard) != outside {
			return false
		}
		// What holds a pool may hold the transaction too, such as a struct that was made for one message.
		return e.Definite || on == outside && h.class(e.Into) != inTx
	case PassesCtx:
	}
	return false
}
