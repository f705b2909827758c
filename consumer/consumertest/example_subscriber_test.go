package consumertest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// An adapter's test says what its broker can do, and returns an empty one.
func ExampleTestSubscriber() {
	test := func(t *testing.T) {
		features := consumertest.Features{
			Delay: true, CountsAttempts: true,
			DoesNotApply: map[string]string{"the broker restarts": "it lives in this process"},
		}
		consumertest.TestSubscriber(t, consumertest.SubscriberHarness{
			New:      func(*testing.T) consumertest.Broker { return &fakeQueue{} },
			Features: features,
			Run:      synctest.Test, // a broker in this process follows the test's clock, so that nothing waits
		})
	}
	_ = test // go test calls it
	// Output:
}

// Features decide which cases apply to a broker.
func ExampleFeatures() {
	sqs := consumertest.Features{Delay: true, CountsAttempts: true}
	fmt.Println("ordered:", sqs.Ordered, "batches:", sqs.Batch)
	// Output: ordered: false batches: false
}

// The suite uses a broker to send, to receive, and to count unacknowledged messages.
func ExampleBroker() {
	var broker consumertest.Broker = &fakeQueue{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := broker.Publish(ctx, consumer.Message{Payload: []byte("hello")}); err != nil {
		panic(err)
	}
	left, _ := broker.Left(ctx)
	fmt.Println("left:", left)

	sub, err := broker.Subscriber(printing{done: cancel}, time.Second)
	if err != nil {
		panic(err)
	}
	if err := sub.Run(ctx); err != nil {
		panic(err)
	}
	left, _ = broker.Left(context.Background())
	fmt.Println("left:", left)
	// Output:
	// left: 1
	// hello
	// left: 0
}

// printing is a consumer.Processor.
type printing struct{ done func() }

func (p printing) Process(_ context.Context, msg *consumer.Message) error {
	fmt.Println(string(msg.Payload))
	p.done()
	return nil
}
