package outbox_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

func TestRelayPublishesWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, broker := outboxtest.NewMemory(), &outboxtest.FakePublisher{}
		enqueueIDs(t, memory, "a1", "b1", "a2")
		_, stop := start(t, outbox.Config{Queue: memory, Publisher: broker})
		enqueueIDs(t, memory, "a3", "-4")
		synctest.Wait()
		got := arrived(broker)
		slices.Sort(got)
		if want := []string{"-4", "a1", "a2", "a3", "b1"}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" {
			t.Error(got)
		}
		stop()
	})
}
