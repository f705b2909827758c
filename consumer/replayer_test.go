package consumer_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// requested is a store that is asked for requested replays, and has none.
type requested struct {
	*sourced
	asked int
}

var _ consumerdriver.ReplayQueue[tx] = (*requested)(nil)

func (r *requested) TakeReplay(context.Context, string,
	time.Duration,
) (*driver.RequestedReplay, consumer.DeadLetter, time.Duration, error) {
	r.asked++
	return nil, consumer.DeadLetter{}, 0, nil
}

func (r *requested) SettleReplay(context.Context, tx, [16]byte, consumer.DeadLetter, observe.Outcome) error {
	return nil
}

func (r *requested) ReturnReplay(context.Context, [16]byte, consumer.DeadLetterID, observe.Cause, string,
	time.Duration,
) error {
	return nil
}

// A Subscriber refuses a topic that does not exist, or a window that is shorter than the broker keeps messages.
// RunReplays, which runs beside it, must not have recorded either by then: the corrected worker would be refused.
func TestReplaysRecordNothingBeforeTheStart(t *testing.T) {
	for name, sources := range map[string][]string{
		"with a Subscriber": {"kafka group g, topic ordres"},
		"without":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log := &requested{sourced: &sourced{Store: consumertest.NewStore()}}, &logs{}
				c := newConsumer(t, config{Store: store, Logger: log.logger()})
				for _, s := range sources {
					c.AddSource(s)
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- c.RunReplays(ctx) }()
				<-time.After(time.Minute)
				synctest.Wait()
				if waits := len(sources) > 0; waits != (len(store.registered) == 0) || waits != (store.asked == 0) ||
					waits != (log.lines("replays wait") == 1) {
					t.Errorf("before Start it recorded %q, and looked for requests %d times; log:\n%s",
						store.registered, store.asked, log.buf.String())
				}
				if err := c.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second)
				synctest.Wait()
				if store.asked == 0 || !slices.Equal(store.registered, append(sources, "window")) {
					t.Errorf("after Start it looked for requests %d times; recorded %q", store.asked, store.registered)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
