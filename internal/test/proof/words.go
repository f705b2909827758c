package proof

import (
	"fmt"
	"slices"
	"strings"
)

// word is a name in the tables, and what it means.
type word struct{ name, what string }

// words explain the boundaries and the actions of a tier, in the order in which a message meets them.
type words struct{ boundaries, actions []word }

var explained = map[string]words{
	Sim: {
		boundaries: []word{
			{"register", "a consumer starts and registers its name in the database"},
			{"begin", "BEGIN of the transaction that claims keys"},
			{"claimed", "the keys are claimed, and the handler has not run"},
			{"stmt", "a statement of the handler, or of the consumer: it writes a dead letter, for example"},
			{"step", "a moment in the handler between two statements"},
			{"commit", "COMMIT"},
			{"answered", "COMMIT was answered, and the process does not know it yet"},
			{"rollback", "ROLLBACK, after the handler or a statement has failed"},
			{"held keys", "the consumer asks which keys another transaction has claimed"},
			{"ack", "the acknowledgement to the broker"},
			{"replay", "an operator replays a dead letter, or discards it"},
			{"open", "a relay opens its session with the database"},
			{"renew", "a relay renews its hold of outbox shards"},
			{"lease", "a relay asks for messages of the outbox"},
			{"leased", "the relay gets them"},
			{"compose", "the relay has decided to publish a message, and has not called the publisher"},
			{"publish", "the publisher sends messages to the broker"},
			{"settle", "the relay records what was sent, deferred or parked"},
			{"close", "a relay ends its session, and gives its hold back"},
			{"request", "a request to another system, made by package calls"},
			{"call record", "package calls reads or writes the record of a call"},
			{"positions: begin session", "a member of a Kafka group gets a partition, and compares its position with the offset"},
			{"positions: claimed", "the keys of a batch are claimed"},
			{"positions: commit", "COMMIT of a batch"},
			{"positions: write", "the position is written to the database"},
			{"positions: compare", "the member looks whether the database still has its position"},
			{"positions: commit offset", "the offset is committed to Kafka"},
			{"positions: close", "the partition is given back"},
		},
		actions: []word{
			{"crash", "the process dies and another one starts; its open transactions are rolled back"},
			{"crash before", "it dies before the request arrives"},
			{"crash after", "it dies after the request took effect"},
			{"crash, COMMIT on its way", "it dies, and its COMMIT still arrives"},
			{"told to stop", "the process is told to stop, as by a deployment, and another one starts"},
			{"freeze", "all of the process stands still, also longer than leases and deliveries last, and then goes on"},
			{"stall", "one goroutine waits, and the rest of the process goes on"},
			{"refused", "the request fails and has no effect"},
			{"unavailable", "the broker says that it can take no message now"},
			{"cut", "the connection is lost before the request arrives"},
			{"lost", "the request is lost"},
			{"answer lost", "the request takes effect, and its answer is lost"},
			{"late", "the process sees an error, and the request takes effect later"},
			{"late and lost", "the process sees an error; the server has the COMMIT for a while longer and then rolls back"},
			{"only the last arrives", "of the messages that are published together, only the last one arrives"},
			{"serialization failure", "the database rolls the transaction back"},
			{"delivery expires", "the broker delivers the message again while its handler still runs"},
			{"outage", "the database is away for a while"},
			{"goes back", "another server takes over that lacks the latest commits, or a backup is restored"},
		},
	},
	Wire: {
		boundaries: []word{
			{"consumer: …", "a statement that a consumer's store sends"},
			{"relay: …", "a statement that a relay's store sends, or a request of its publisher"},
			{"…, answered", "the server's answer to it"},
			{"connect", "a new connection, until its first statement"},
			{"known key", "the consumer reads the claim of a key that exists already"},
			{"effect", "the handler's INSERT"},
			{"enqueue", "the INSERT of an outbox message"},
			{"notify", "pg_notify, which wakes the relay"},
			{"checks of the session", "the settings that pgxstore and sqlstore check on a new connection"},
			{"hold", "a relay takes or renews its hold of outbox shards"},
			{"lease", "a relay reads messages of the outbox"},
			{"settle", "a relay deletes or marks what was sent"},
			{"anything else", "all other statements"},
		},
		actions: []word{
			{"cut before", "the connection ends before the message reaches the other side"},
			{"cut after", "the message reaches the other side and takes effect, and then the connection ends"},
			{"cut, arrives late", "the connection ends at once, and the server gets the message later"},
			{"stall", "the message is held back for a while"},
			{"server error", "the server fails the statement or the request; a COMMIT becomes a ROLLBACK"},
		},
	},
}

// write explains the tier's words.
func (w words) write(b *strings.Builder) {
	for _, list := range []struct {
		title string
		words []word
	}{{"boundary", w.boundaries}, {"action", w.actions}} {
		if len(list.words) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n| %s | what it is |\n|---|---|\n", list.title)
		for _, w := range list.words {
			fmt.Fprintf(b, "| %s | %s |\n", w.name, w.what)
		}
	}
}

// Unexplained returns the boundaries and actions of the simulation, and the actions at the wire, that the page does not
// explain. Most boundaries at the wire are words of the protocol.
func Unexplained(runs []Run) (names []string) {
	for _, r := range runs {
		w, found := explained[r.Tier]
		if !found {
			continue
		}
		for _, c := range r.Cells {
			if r.Tier == Sim && !has(w.boundaries, c.Boundary) {
				names = append(names, c.Boundary)
			}
			if !has(w.actions, c.Action) {
				names = append(names, c.Action)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func has(words []word, name string) bool {
	return slices.ContainsFunc(words, func(w word) bool { return w.name == name })
}
