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

// An adapter's test says what its broker can do and how to get one that is empty.
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

// A case that cannot exist on a broker is listed with its reason. These are the reasons that Features has by itself.
func ExampleFeatures() {
	sqs := consumertest.Features{Delay: true, CountsAttempts: true}
	fmt.Println("ordered:", sqs.Ordered, "batches:", sqs.Batch)
	// Output: ordered: false batches: false
}

// What the suite needs of a broker: sending, receiving, and what is left.
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
