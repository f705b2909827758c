package decide_test

import (
	"testing"

	"github.com/txonce/txonce/consumer/internal/decide"
)

func TestOfTransaction(t *testing.T) {
	database := decide.Failure{Database: true}
	inFlight := decide.Failure{InFlight: true}
	for _, tc := range []struct {
		name  string
		f     decide.Failure
		tried decide.Tried
		want  decide.Plan
	}{
		{
			"one message failed",
			decide.Failure{},
			decide.Tried{Messages: 1, Claimed: true, Ran: 1, Culprits: 1},
			decide.Judge,
		},
		{
			"one of several failed",
			decide.Failure{},
			decide.Tried{Messages: 3, Claimed: true, Ran: 2, Culprits: 1},
			decide.Around,
		},
		{
			"some were refused without a transaction",
			decide.Failure{Refused: true},
			decide.Tried{Messages: 3, Culprits: 2},
			decide.Around,
		},
		{
			"nobody knows which failed",
			decide.Failure{},
			decide.Tried{Messages: 3, Claimed: true, Ran: 3},
			decide.Halves,
		},
		{
			"the database failed under handlers", database,
			decide.Tried{Messages: 3, Claimed: true, Ran: 3},
			decide.Halves,
		},
		{"the database failed before the claims were answered", database, decide.Tried{Messages: 3}, decide.PauseAll},
		{"the same for one message", database, decide.Tried{Messages: 1}, decide.PauseAll},
		{
			"the clocks disagree, or one message's time is wrong",
			decide.Failure{Database: true, Clocks: true},
			decide.Tried{Messages: 3},
			decide.Halves,
		},
		{"a key is in flight", inFlight, decide.Tried{Messages: 3, CanProbe: true}, decide.ProbeKeys},
		{"a key is in flight, and the store cannot tell which", inFlight, decide.Tried{Messages: 3}, decide.Halves},
		{"the only key is in flight", inFlight, decide.Tried{Messages: 1, CanProbe: true}, decide.Judge},
		{
			"another call of this process holds the key of one", inFlight,
			decide.Tried{Messages: 3, Culprits: 1, CanProbe: true},
			decide.Around,
		},
		{"a handler says that its key is in flight", inFlight, decide.Tried{Messages: 3, Claimed: true, Ran: 1, Culprits: 1, CanProbe: true}, decide.Around},
		{
			"a shutdown",
			decide.Failure{Cancelled: true, Permanent: true},
			decide.Tried{Messages: 1, Claimed: true, Ran: 1},
			decide.HoldAll,
		},
		{
			"a shutdown while the database is away",
			decide.Failure{Cancelled: true, Database: true},
			decide.Tried{Messages: 3},
			decide.HoldAll,
		},
	} {
		if got := decide.OfTransaction(tc.f, tc.tried); got != tc.want {
			t.Errorf("%s: plan %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestDoubts(t *testing.T) {
	ran := decide.Tried{Messages: 2, Claimed: true, Ran: 1}
	for _, tc := range []struct {
		name      string
		f         decide.Failure
		tried     decide.Tried
		add, sure bool
	}{
		{"a handler failed", decide.Failure{}, ran, false, false},
		{"a handler committed", decide.Failure{Ended: true}, ran, true, true},
		{
			"a handler rolled back, and the store knows",
			decide.Failure{Ended: true, RolledBack: true},
			ran,
			false, false,
		},
		{
			"the connection was lost after a handler may have committed",
			decide.Failure{Maybe: true, Database: true},
			ran,
			true, false,
		},
		{"a handler committed, and the connection was lost", decide.Failure{Ended: true, Maybe: true}, ran, true, true},
		{"no handler ran", decide.Failure{Ended: true}, decide.Tried{Messages: 2, Claimed: true}, false, false},
		{
			"the claim's COMMIT has no answer, and no handler ran",
			decide.Failure{Maybe: true},
			decide.Tried{Messages: 2},
			false, false,
		},
	} {
		if add, sure := decide.Doubts(tc.f, tc.tried); add != tc.add || sure != tc.sure {
			t.Errorf("%s: %v, %v, want %v, %v", tc.name, add, sure, tc.add, tc.sure)
		}
	}
}

func TestCollided(t *testing.T) {
	deadlock := decide.Failure{Database: true}
	several := decide.Tried{Messages: 2, Claimed: true}
	for _, tc := range []struct {
		name  string
		f     decide.Failure
		tried decide.Tried
		want  bool
	}{
		{"a deadlock", deadlock, several, true},
		{"a missing column", decide.Failure{Database: true, Ambiguous: true}, several, false},
		{"the handler's own error", decide.Failure{}, several, false},
		{"one message", deadlock, decide.Tried{Messages: 1, Claimed: true}, false},
		{"before the claims were answered", deadlock, decide.Tried{Messages: 2}, false},
		{"a shutdown", decide.Failure{Database: true, Cancelled: true}, several, false},
	} {
		if got := decide.Collided(tc.f, tc.tried); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
