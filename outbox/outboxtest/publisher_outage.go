package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/outbox"
)

// outageCases are about deadlines, and about a broker that does not answer.
func outageCases() []publisherCase {
	const (
		deadline  = "26: publishing ends by the deadline"
		confirmed = "28: only what the broker confirmed counts"
	)
	return []publisherCase{
		{
			name: "nothing is confirmed after the deadline that is not in the broker", hazard: deadline,
			run: pastDeadline,
		},
		{name: "Publish returns when ctx is cancelled", hazard: deadline, run: cancelled},
		{
			name: "Publish returns by the deadline from a broker that does not answer", hazard: deadline,
			run: silentBroker,
		},
		{name: "a broker that is away is unavailable, and comes back", hazard: confirmed, run: awayBroker},
	}
}

// grace is how much later than its deadline Publish may return on a busy machine. A client's own timeouts are longer.
const grace = 15 * time.Second

// prompt fails when Publish needs longer than its deadline.
func (e *publisherEnv) prompt(ctx context.Context, msgs ...outbox.Message) []error {
	e.Helper()
	start := time.Now()
	end := start
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil && deadline.After(start) {
		end = deadline
	}
	errs := e.publish(ctx, msgs...)
	if late := time.Since(end); late > grace {
		e.Errorf("Publish returned %v after its deadline", late)
	}
	return errs
}

func pastDeadline(e *publisherEnv) {
	e.confirm(e.message("warm", "k"))
	confirmed := []string{"warm"}
	for _, left := range []time.Duration{-time.Second, 0, time.Microsecond, time.Millisecond} {
		ctx, cancel := context.WithTimeout(e.ctx, left)
		var msgs []outbox.Message
		for i := range 5 {
			msgs = append(msgs, e.message(fmt.Sprint(left, i), fmt.Sprint("k", left, i)))
		}
		for i, err := range e.prompt(ctx, msgs...) {
			switch {
			case err == nil:
				confirmed = append(confirmed, msgs[i].ID)
			case outbox.IsPermanent(err):
				e.Errorf("a message is refused for good because time was short: %v", err)
			}
		}
		cancel()
	}
	after := e.message("after", "k")
	e.confirm(after) // the calls before have not broken the publisher
	e.wantThere(append(confirmed, after.ID)...)
}

// wantThere fails when a confirmed message is missing. Others may be there: they were sent before the deadline.
func (e *publisherEnv) wantThere(ids ...string) {
	e.Helper()
	_, times := e.arrived(e.topic, len(ids))
	for _, id := range ids {
		if times[id] == 0 {
			e.Errorf("message %q was confirmed and is not in the broker", id)
		}
	}
}

func cancelled(e *publisherEnv) {
	e.confirm(e.message("warm", "k"))
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	confirmed := []string{"warm"}
	for i, err := range e.prompt(ctx, e.message("1", "k1"), e.message("2", "k2")) {
		switch {
		case err == nil:
			confirmed = append(confirmed, fmt.Sprint(i+1))
		case outbox.IsPermanent(err):
			e.Errorf("a message is refused for good because the relay stopped: %v", err)
		}
	}
	e.wantThere(confirmed...)
}

func silentBroker(e *publisherEnv) {
	e.hook("Pause", e.Pause == nil)
	e.confirm(e.message("warm", "k"))
	resume := e.Pause(e.t)
	for i := range 2 {
		ctx, cancel := context.WithTimeout(e.ctx, time.Second)
		for j, err := range e.prompt(ctx, e.message(fmt.Sprint("a", i), "k1"), e.message(fmt.Sprint("b", i), "k2")) {
			switch {
			case err == nil:
				e.Errorf("message %d was confirmed by a broker that does not answer", j+1)
			case outbox.IsPermanent(err):
				e.Errorf("a message is refused for good because the broker is silent: %v", err)
			}
		}
		cancel()
	}
	resume()
	e.back("after")
	e.wantThere("warm", "after")
}

// back publishes until the broker confirms, with pauses as a relay makes them.
func (e *publisherEnv) back(id string) {
	e.Helper()
	m := e.message(id, "k")
	for {
		ctx, cancel := context.WithTimeout(e.ctx, 10*time.Second)
		err := e.publish(ctx, m)[0]
		cancel()
		if err == nil {
			return
		}
		if outbox.IsPermanent(err) {
			e.Fatalf("refused for good because the broker was away: %v", err)
		}
		if e.ctx.Err() != nil {
			e.Fatalf("the broker is back, and nothing is confirmed: %v", err)
		}
		pause(e.ctx)
	}
}

func awayBroker(e *publisherEnv) {
	e.hook("Stop", e.Stop == nil)
	e.confirm(e.message("warm", "k"))
	start := e.Stop(e.t)
	for i := range 2 {
		ctx, cancel := context.WithTimeout(e.ctx, 10*time.Second)
		for j, err := range e.prompt(ctx, e.message(fmt.Sprint("a", i), "k1"), e.message(fmt.Sprint("b", i), "k2")) {
			if unavailable := new(outbox.UnavailableError); !errors.As(err, &unavailable) {
				e.Errorf("message %d: the broker is away, and the error is no UnavailableError: %v", j+1, err)
			}
		}
		cancel()
	}
	start()
	e.back("after")
	e.wantThere("warm", "after")
}
