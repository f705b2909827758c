package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// timing is a store whose error errLate says that a limit of time was exceeded.
type timing struct{ *faulty }

var errLate = fmt.Errorf("canceling statement due to statement timeout: %w", errFault)

func (c timing) Ambiguous(err error) bool { return errors.Is(err, errLate) }

func (c timing) FaultClass(err error) driver.FaultClass {
	if errors.Is(err, errLate) {
		return driver.FaultTimeLimit
	}
	return driver.FaultConnection
}

func (c timing) Result(error) observe.Result { return observe.RolledBack }

// A message that is parked because its own statements take too long leaves no pause behind: the next messages may be
// duplicates, which prove nothing, and a process that is not ready gets none.
func TestAMessageThatIsParkedForItsOwnErrorsEndsThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := timing{&faulty{Store: consumertest.NewStore()}}, &logs{}
		c := newConsumer(t, config{Store: store, Logger: log.logger(), Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "bad" {
				<-time.After(2 * time.Second)
				return tx.Fail(errLate)
			}
			return tx.Add(m.ID)
		}})
		process(t, c, msg("good", "x"))
		m := msg("bad", "x")
		for range 200 {
			err := c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]
			if err == nil {
				break
			}
			retry, _ := errors.AsType[*consumer.RetryError](err)
			if !retry.Held {
				m.Attempt++
			}
			<-time.After(retry.After)
		}
		if n, paused, resumed := len(letters(t, c)), log.lines("consumer paused"), log.lines("goes on"); n != 1 ||
			paused != 1 || resumed != 1 {
			t.Errorf("%d letters, %d pauses began, %d ended; want one of each:\n%s", n, paused, resumed,
				log.buf.String())
		}
	})
}
