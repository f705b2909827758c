package wireproxy

import (
	"fmt"
	"sync"
	"time"
)

// Frame is a message of a client or of the server.
type Frame struct {
	N          int    // its number since Arm, in both directions, on all connections of the proxy
	Conn       int    // the number of the client's connection
	FromServer bool   // otherwise from the client
	Kind       string // of the protocol, such as Bind, CommandComplete, COM_QUERY, Produce
	Statement  string // the text of the statement that it belongs to; or Connect, Cancel, or the protocol's own word
	Commit     bool   // it belongs to a COMMIT

	answers bool   // Answer is possible
	failed  func() // is called when the client gets the error of an Answer; nil: there is none
}

// The Statement of frames that belong to none.
const (
	Connect = "connect" // the first message of a client, and the server's last answer before the first statement
	Cancel  = "cancel"  // PostgreSQL's CancelRequest
)

func (f Frame) String() string {
	arrow := "->"
	if f.FromServer {
		arrow = "<-"
	}
	text := f.Statement
	if len(text) > 60 {
		text = text[:60] + "…"
	}
	return fmt.Sprintf("%4d #%d %s %s %q", f.N, f.Conn, arrow, f.Kind, text)
}

// Kind is what an Action does.
type Kind int

// The kinds of actions.
const (
	Forward Kind = iota
	// CutBefore ends the client's connection before the frame reaches the other side. The server rolls back.
	CutBefore
	// CutAfter lets the frame reach the other side, and then ends the client's connection: for a frame of the client
	// after the server has finished with it, so that its outcome is decided when the client sees the cut.
	CutAfter
	// CutLate ends the client's connection at once, and sends its frame to the server after Action.For.
	CutLate
	// Stall holds the frame for Action.For.
	Stall
	// Answer makes the server fail the statement with Action.Code. A COMMIT becomes a ROLLBACK and this error.
	Answer
)

func (k Kind) String() string {
	return [...]string{"forward", "cut before", "cut after", "cut, arrives late", "stall", "server error"}[k]
}

// Action is what happens to a frame. The zero Action forwards it.
type Action struct {
	Kind Kind
	For  time.Duration // CutLate and Stall
	Code string        // Answer: PostgreSQL's SQLSTATE, or MySQL's number of an error; Kafka has one, 21

	// Done is called when all of this has happened. It is not called when something came first: the client or the server
	// had gone, or gave up during the Stall, or the server failed for another reason than Code. Defaults to nothing.
	Done func()
	// Late is held while CutLate sends the frame, so that a test can look at the server before. Defaults to nothing.
	Late sync.Locker
}

// done reports that the action has happened.
func (a Action) done() {
	if a.Done != nil {
		a.Done()
	}
}

// Allows reports whether an action is possible: the server cannot be made to send late what it has sent, and only
// statements fail.
func (f Frame) Allows(k Kind) bool {
	switch k {
	case CutLate:
		return !f.FromServer && f.Statement != Connect
	case Answer:
		return f.answers
	default:
		return true
	}
}
