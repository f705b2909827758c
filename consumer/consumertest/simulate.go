package consumertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
)

// Simulation describes a system of processes for Simulate.
type Simulation struct {
	// New makes the consumer of one process, on p.Store(). It is called for each process and after each crash. Its
	// settings may vary by p.Rand. What its handler keeps in memory must be made in New too, so that a crash loses it,
	// and no case finds what another one has left. Required.
	New func(p *Process) (*consumer.Consumer[*deduptest.Tx], error)

	// Messages returns what the source delivers in one case: one to three messages are enough, and one is required. A
	// message that is there twice was sent twice. Required.
	Messages func(r *rand.Rand) []consumer.Message

	// Check looks at a case that has come to rest: nothing is in progress, and all messages are acknowledged. Defaults
	// to the rules that always hold; see Simulate. Check or Effects is required.
	Check func(w *World) error

	// Effects counts the committed effects of the handler of New for msg and its copies, for the rules. Defaults to 1 if
	// the message's key is claimed, and 0 if not: then only Check sees a handler that does nothing, or does it twice. The
	// effect of a message that the handler drops on purpose is its claim: World.Database().Claimed.
	Effects func(w *World, msg *consumer.Message) int

	// Next makes a second consumer, which gets what the relays publish, with the message's ID, payload, headers and
	// ordering key. What it does is for Check: the rules look at its claims. Defaults to none.
	Next func(p *Process) (*consumer.Consumer[*deduptest.Tx], error)

	// Publishers makes the publishers of single topics for a relay's process, such as a calls.Calls on p.Store(). The
	// other topics go to the broker of the simulation. Defaults to none.
	Publishers func(p *Process) (map[string]outbox.Publisher, error)

	// Processes is how many processes the consumer has at most. Defaults to 2.
	Processes int
	// Relays is how many relays publish the outbox at most. Defaults to none. With some, a case comes to rest only when
	// nothing is left in the outbox.
	Relays int
	// Cases is how many cases are run; the environment's CASES replaces it. Defaults to 1000.
	Cases int
	// From is the number of the first case; the environment's FROM replaces it. Defaults to 0.
	From int
	// Seed is where the cases come from; the environment's SEED replaces it. Defaults to 1.
	Seed uint64

	// Fired is called for each fault that a case had.
	Fired func(boundary, action string)

	discards bool // the operator discards some dead letters
}

// Simulate runs consumers, relays and their handlers under a scheduler that Simulation.Seed decides, on a database and
// a broker in memory, in virtual time. Each case has its own messages, processes and faults: connections are cut,
// COMMITs and answers are lost or come late, processes crash, stand still, are told to stop and start again, deliveries
// expire.
//
// It fails the test when a rule is broken, or the system does not come to rest:
//
//   - A message is acknowledged only if it has an effect or a dead letter, and a dead letter is written only for a
//     message without effect. A delivery has the same key each time.
//   - A relay settles only with a current token, marks as sent only what has arrived, and begins to publish only before
//     the end of its hold.
//   - The effects of one ordering key are committed in the order of its messages, except those of a message that became
//     a dead letter first: its replay may come later. The source delivers a message of a key when the earlier ones are
//     acknowledged, or in one batch with them.
//   - At rest each message has at most one effect, an effect or a dead letter, and a claim exactly if it has an effect.
//     No transaction is open, and nothing is left in the outbox. The first arrivals of an ordering key are in the order
//     of their commits.
//
// The failure names the seed and the case, and has the shortest plan of faults that still fails by the same rule, with a
// trace. With
// SEED, FROM and CASES in the environment the case runs again; with CASES=1 and go test -v, a case that does not fail
// has a trace too. The program uses one processor meanwhile, so that the case is the same one; the race detector, which
// lets goroutines run in random order, may still make another of it.
//
// Each process makes a Consumer, which logs when it starts, and what fails: give it a Config.Logger that discards.
//
// Of twenty cases or more, one must have had a fault, and one an effect.
//
// Handlers must do all their work in their transaction. Statements of the transaction are boundaries where faults
// happen. Process.Step adds others, and Process.Request is a request to another system. Handlers must not hold a mutex
// there: the simulation would wait for ever for goroutines that want it. In some cases an operator replays dead letters
// meanwhile.
func Simulate(t *testing.T, s Simulation) {
	t.Helper()
	if err := s.complete(); err != nil {
		t.Fatal(err)
	}
	s, err := s.withEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if said := s.simulate(t); said != "" {
		t.Fatal(said)
	}
}

func (s *Simulation) complete() error {
	switch {
	case s.New == nil:
		return errors.New("consumertest: Simulation.New is required")
	case s.Messages == nil:
		return errors.New("consumertest: Simulation.Messages is required")
	case s.Effects == nil && s.Check == nil:
		return errors.New("consumertest: Simulation.Effects or Simulation.Check is required: without them a handler " +
			"that does nothing would pass")
	}
	for _, setting := range []struct {
		name string
		n    int
	}{{"Processes", s.Processes}, {"Relays", s.Relays}, {"Cases", s.Cases}, {"From", s.From}} {
		if setting.n < 0 {
			return fmt.Errorf("consumertest: Simulation.%s is %d: want 1 or more, or 0 for its default", setting.name, setting.n)
		}
	}
	return nil
}

// enough is how many cases must have had a fault and an effect among them.
const enough = 20

// simulate runs all cases, and says what is wrong with the first that fails.
func (s Simulation) simulate(t *testing.T) string {
	t.Helper()
	defer exclusively()()
	faults, effects := 0, 0
	for n := s.From; n < s.From+s.Cases; n++ {
		r, failure := s.try(t, n)
		if failure != nil {
			return failure.explain(t.Name(), s, n)
		}
		faults, effects = faults+len(r.fired), effects+r.effects
		if s.Cases == 1 && testing.Verbose() {
			t.Log(s.tell(t, n))
		}
	}
	switch {
	case s.Cases < enough:
	case faults == 0:
		return fmt.Sprintf("consumertest: no fault happened in %d cases: they have shown nothing", s.Cases)
	case effects == 0:
		return fmt.Sprintf("consumertest: no message has had an effect in %d cases, because all became dead letters: they "+
			"have shown nothing. Does the handler fail, or the key function?", s.Cases)
	}
	return ""
}
