package ops

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// ActionID identifies an action.
type ActionID [16]byte

func (id ActionID) String() string { return hex.EncodeToString(id[:]) }

// ParseActionID is the inverse of ActionID.String.
func ParseActionID(s string) (id ActionID, err error) {
	if len(s) == 2*len(id) {
		if _, err := hex.Decode(id[:], []byte(s)); err == nil && id != (ActionID{}) {
			return id, nil
		}
	}
	return ActionID{}, fmt.Errorf("ops: %q is not an action's id: want %d hexadecimal digits, not all zero", s,
		2*len(id))
}

// Kind says what an action does.
type Kind string

// The kinds of actions.
const (
	Replay        Kind = "replay"         // dead letters are processed again by workers
	Repair        Kind = "repair"         // one dead letter is processed again by a worker, with another payload
	Discard       Kind = "discard"        // dead letters are removed
	Unpark        Kind = "unpark"         // messages of the outbox are pending again
	Answer        Kind = "answer"         // somebody has said whether a call in doubt has happened; its message is pending again
	DiscardOutbox Kind = "discard_outbox" // messages of the outbox are deleted
	Horizon       Kind = "horizon"        // claims may be missing up to a later time
	Import        Kind = "import"         // keys of another table of processed messages are claimed
)

// Request asks for an action.
type Request struct {
	Kind   Kind
	Who    string // required: the person or program that acts
	Reason string // required: why, for later readers

	// Filter chooses the dead letters of Replay and Repair. Its Consumer is required. A Limit of 0 means all. Repair
	// needs the ID of one letter.
	Filter consumer.DeadLetterFilter

	// Of Replay and Repair; see consumer.Replay.
	Key   string // only if the filter chooses one letter
	AsNew bool

	// Payload replaces that of the letter, for Repair. The message is still claimed with its own key and fingerprint,
	// so that a late redelivery of the original is a duplicate. It is kept until the action ends; then its size and its
	// SHA-256 are left, in Action.Filter. At most MaxRepair bytes.
	Payload []byte

	// Rate is how many letters of a Replay all workers together take in a second, at least MinRate. Letters that were
	// taken late may be followed by others up to 0.1 s early. 0: no limit.
	Rate float64

	// MaxFailures ends a Replay after so many failures. 0: it does not end early. Operators are offered
	// DefaultMaxFailures.
	MaxFailures int

	// Expect refuses the action unless the filter chooses exactly so many letters, or parked messages. Negative: any
	// number.
	Expect int

	Note string // of other kinds than Replay: what was chosen, in words
}

// DefaultMaxFailures is the MaxFailures that the command line and the dashboard propose.
const DefaultMaxFailures = 10

// MinRate is the lowest Request.Rate that limits anything: about one letter in a month.
const MinRate = 4e-7

// Validate returns nil if r can be requested.
func (r *Request) Validate() error {
	switch {
	case r.Who == "":
		return errors.New("ops: Request.Who is required")
	case r.Reason == "":
		return errors.New("ops: Request.Reason is required: the next operator will want to know why")
	case (r.Kind == Replay || r.Kind == Repair) && r.Filter.Consumer == "":
		return errors.New("ops: Request.Filter.Consumer is required: workers replay the letters of their own consumer")
	case (r.Kind == Replay || r.Kind == Repair) && r.Filter.After != consumer.DeadLetterCursor{}:
		return errors.New("ops: Request.Filter.After has no meaning for an action")
	case r.Key != "" && r.Filter.ID == (consumer.DeadLetterID{}):
		return errors.New("ops: Request.Key is for one letter: set Request.Filter.ID")
	case r.Kind == Repair && r.Filter.ID == (consumer.DeadLetterID{}):
		return errors.New("ops: a repair is for one letter: set Request.Filter.ID")
	case r.Kind != Repair && r.Payload != nil:
		return errors.New("ops: Request.Payload is for Repair")
	case len(r.Payload) > MaxRepair:
		return fmt.Errorf("ops: Request.Payload has %d bytes, more than %d: use consumer.Replay with Repair in a program of your own", len(r.Payload), MaxRepair)
	case r.Kind == Repair && r.Note != "":
		return errors.New("ops: Request.Note has no meaning for a repair")
	case r.Rate != 0 && r.Rate < MinRate, math.IsNaN(r.Rate), math.IsInf(r.Rate, 0): // no database can wait for it
		return fmt.Errorf("ops: Request.Rate is %v: want %v letters a second or more, or 0 for no limit", r.Rate,
			MinRate)
	case r.MaxFailures < 0:
		return fmt.Errorf("ops: Request.MaxFailures is negative: %d", r.MaxFailures)
	}
	if r.Key != "" {
		if err := (dedup.Key{Consumer: r.Filter.Consumer, ID: r.Key}).Validate(); (r.Kind == Replay ||
			r.Kind == Repair) && err != nil {
			return fmt.Errorf("ops: Request.Key: %w", err)
		}
	}
	switch r.Kind {
	case Replay, Repair, Discard, Unpark, Answer, DiscardOutbox, Horizon, Import:
		return nil
	}
	return fmt.Errorf("ops: Request.Kind is %q: want replay, repair, discard, unpark, discard_outbox, horizon or import", r.Kind)
}

// MaxRepair is how many bytes a repaired payload may have. In base64 they fit into 16 MiB: a MEDIUMTEXT column of
// MySQL, and its default of max_allowed_packet. A server with a lower one refuses a request that is longer, and nothing
// is recorded.
const MaxRepair = 8 << 20

// ErrExpected says that an action was refused because its filter chooses another number of letters or messages than
// Request.Expect.
var ErrExpected = errors.New("ops: the filter chooses another number than expected")

// ErrNoAction says that there is no action with that ID.
var ErrNoAction = errors.New("ops: no such action")

// Action is something that an operator has done or requested. Times are by the database's clock.
type Action struct {
	ID               ActionID
	Kind             Kind
	Consumer         string // empty: it is about the outbox
	Who, Reason      string
	Filter           string // as JSON, for people
	Key              string
	AsNew            bool
	Rate             float64
	MaxFailures      int
	Requested, Ended time.Time // Ended is zero while letters wait
	Note             string    // why it ended, or what was chosen

	Matched int // letters that were chosen

	// Results counts letters. For a letter, the outcomes mean:
	//
	//	Processed   its handler was committed
	//	Duplicate   it was processed or removed meanwhile
	//	Parked      its replay failed
	//	Rejected    it was discarded
	//	Held        it was not tried before the action ended
	Results map[observe.Outcome]int
	Waiting int // letters that are still marked
}

// ActionFilter chooses actions. Fields with the zero value choose all.
type ActionFilter struct {
	ID       ActionID
	Consumer string
	Kind     Kind
	Open     bool // only those that have not ended
	Before   time.Time
	Limit    int // 0: 100
}

// Result is what happened to one dead letter of an action.
type Result struct {
	Action  ActionID
	Letter  consumer.DeadLetterID
	Outcome observe.Outcome // as in Action.Results; empty: it is being processed, or its worker has ended
	Cause   observe.Cause
	Error   string
	At      time.Time
	Tries   int
}

// ResultFilter chooses results. Action is required.
type ResultFilter struct {
	Action  ActionID
	Outcome observe.Outcome // empty: all
	Limit   int             // 0: 100
}
