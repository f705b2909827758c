package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

// A batch may end at the very moment when a poll is due, and the dispatcher may see the end first: then it polls at
// once, and not after PollMax.
func TestRelayPollThatIsOverdueComesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Queue: struct{ driver.Queue }{}, Publisher: struct{ outbox.Publisher }{}})
		if err != nil {
			t.Fatal(err)
		}
		d := newDispatcher(&session{relay: r, queue: struct{ driver.Session }{}}, untilStopped)
		now := time.Now()
		for _, test := range []struct {
			name  string
			due   bool
			poll  time.Duration // from now
			retry time.Duration // likewise; 0: none
			pause time.Duration
			want  time.Duration
		}{
			{name: "a poll to come", poll: time.Second, want: time.Second},
			{name: "a poll overdue", poll: -time.Millisecond},
			{name: "a poll now"},
			{name: "a retry before it", poll: time.Second, retry: time.Millisecond, want: time.Millisecond},
			{name: "a retry overdue", poll: time.Second, retry: -time.Millisecond},
			{name: "not before the pause ends", poll: -time.Millisecond, pause: time.Minute, want: time.Minute},
			{name: "due after the pause", due: true, pause: time.Minute, want: time.Minute},
			{name: "due, but all workers are busy", due: true, want: r.cfg.PollMax},
		} {
			d.pollDue, d.nextPoll, d.notBefore, d.nextRetry = test.due, now.Add(test.poll), now.Add(test.pause),
				time.Time{}
			if test.retry != 0 {
				d.nextRetry = now.Add(test.retry)
			}
			if got := d.untilNextPoll(); got != test.want {
				t.Errorf("%s: polls in %v, want %v", test.name, got, test.want)
			}
		}
	})
}
