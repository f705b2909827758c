package outboxtest

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// limitCases are about the sizes of a message. Enqueue must refuse what the database could not store later, when the
// message fails.
func limitCases[TTx any]() []storeCase[TTx] {
	const hazard = "28: nothing is lost, and what Enqueue accepts can be stored in every state"
	return []storeCase[TTx]{
		{name: "messages at the limits are deferred, parked and published", hazard: hazard, run: atLimits[TTx]},
		{name: "a message beyond a limit is refused by name", hazard: hazard, run: beyondLimits[TTx]},
	}
}

// randomBytes returns bytes that no database can compress.
func randomBytes(n int) string {
	random := rand.NewChaCha8([32]byte{byte(n)})
	b := make([]byte, n)
	_, _ = random.Read(b)
	return string(b)
}

func atLimits[TTx any](e *env[TTx]) {
	msgs := []outbox.Message{
		message(strings.Repeat("ż", 127), randomBytes(outbox.MaxOrderingKey)),
		message("next", randomBytes(outbox.MaxOrderingKey)), message("other", "k"),
	}
	for i := range msgs {
		msgs[i].Topic = strings.Repeat("t", 255)
	}
	e.enqueue(msgs...)
	s := e.session()
	leased := s.await(idsOf(msgs)...)
	s.settle(deferred(leased[0], 0), outcomes(driver.Sent, leased[2])[0],
		driver.Outcome{Leased: leased[1], Verdict: driver.Returned})
	leased = s.await(msgs[0].ID, "next")
	s.settle(parked(leased[0], outbox.BlockKey), driver.Outcome{Leased: leased[1], Verdict: driver.Returned})
	e.wantParked(s, map[string]string{msgs[0].ID: "", "next": msgs[0].ID}, true)
	e.unpark(leased[0].Seq)
	if all := s.drain(2); all[0].OrderingKey != msgs[0].OrderingKey || all[0].Topic != msgs[0].Topic {
		e.Errorf("the message has another key or topic")
	}
	late := message("late", randomBytes(outbox.MaxOrderingKey))
	late.NotBefore = time.Now().Add(time.Millisecond)
	e.enqueue(late)
	s.drain(1)
}

func beyondLimits[TTx any](e *env[TTx]) {
	for what, change := range map[string]func(*outbox.Message){
		"the key has 2049 bytes": func(m *outbox.Message) { m.OrderingKey = randomBytes(outbox.MaxOrderingKey + 1) },
		"the payload has":        func(m *outbox.Message) { m.Payload = make([]byte, outbox.MaxPayload+1) },
		"the headers have":       func(m *outbox.Message) { m.Headers["h"] = strings.Repeat("h", outbox.MaxHeaders) },
	} {
		m := message("long", "k")
		change(&m)
		err := e.try(func(tx TTx) error { return e.Writer.Enqueue(e.ctx, tx, message("short", "k"), m) })
		if !errors.Is(err, outbox.ErrBadMessage) || !strings.Contains(err.Error(), what) {
			e.Errorf("error %v, want ErrBadMessage that says %q", err, what)
		}
	}
	e.session().quiet("each call was refused")
}
