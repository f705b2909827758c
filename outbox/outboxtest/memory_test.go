package outboxtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
)

func TestOutboxMemoryFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := outboxtest.NewMemory()
		ctx := t.Context()
		if err := m.InTx(ctx, func(tx *outboxtest.Tx) error {
			return m.Enqueue(ctx, tx, outbox.Message{ID: "1", Topic: "t", NotBefore: time.Now().Add(time.Hour)})
		}); err != nil {
			t.Fatal(err)
		}
		s, err := m.Open(ctx, driver.SessionOptions{TTL: 2 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := s.Renew(ctx); err != nil || h.Shards != outboxtest.DefaultShards ||
			!h.Until.Equal(time.Now().Add(2*time.Hour)) {
			t.Fatalf("hold %+v, error %v", h, err)
		}
		for _, want := range []int{0, 1} {
			if got, err := s.Lease(ctx, driver.Want{Limit: 10}); err != nil || len(got) != want {
				t.Fatalf("leased %v, error %v; want %d", got, err, want)
			}
			<-time.After(time.Hour)
		}
		if _, err := s.Renew(ctx); err != driver.ErrLeaseLost {
			t.Fatalf("Renew at the end of the hold: %v", err)
		}
	})
}

func ExampleMemory() {
	ctx := context.Background()
	m := outboxtest.NewMemory()
	err := m.InTx(ctx, func(tx *outboxtest.Tx) error {
		return m.Enqueue(ctx, tx, outbox.Message{ID: "order-1", Topic: "orders", OrderingKey: "customer-7"})
	})
	stats, _ := m.Stats(ctx)
	fmt.Println(err, stats.Pending)
	// Output: <nil> 1
}

func ExampleFakePublisher() {
	f := &outboxtest.FakePublisher{Decide: func(m outbox.Message) outboxtest.Fate {
		if m.ID == "2" {
			return outboxtest.Fate{Lost: true}
		}
		return outboxtest.Fate{}
	}}
	errs := f.Publish(context.Background(), []outbox.Message{{ID: "1", Topic: "t"}, {ID: "2", Topic: "t"}})
	fmt.Println(errs, f.Confirmed(), len(f.Published()))
	// Output: [<nil> outboxtest: the answer was lost] [1] 2
}
