package snshook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
)

// A Verifier belongs into webhook.Config.Verifier. Here it is called by hand, with messages that a Signer signed.
func Example() {
	signer, err := snshook.NewSigner()
	if err != nil {
		panic(err)
	}
	sns, err := snshook.New(snshook.Config{
		TopicArns: []string{"arn:aws:sns:eu-west-1:123456789012:orders"},
		Transport: signer, // for this example only: requests go to the signer instead of the network
	})
	if err != nil {
		panic(err)
	}
	receive := func(m snshook.Message) {
		body, err := signer.Sign(m)
		if err != nil {
			panic(err)
		}
		events, err := sns.Verify(context.Background(), &webhook.Delivery{Body: body, Time: time.Now()})
		if err != nil {
			fmt.Println("refused:", webhook.RefusalOf(err))
			return
		}
		fmt.Printf("%s: %s\n", events[0].Message.ID, events[0].Message.Payload)
	}
	receive(snshook.Message{
		TopicArn: "arn:aws:sns:eu-west-1:123456789012:orders", MessageID: "165545c9-2a5c-472c-8df2-7ff2be2b3b1b",
		Message: "order 42 is paid",
	})
	receive(snshook.Message{TopicArn: "arn:aws:sns:eu-west-1:666666666666:orders", Message: "order 42 is refunded"})
	// Output:
	// 165545c9-2a5c-472c-8df2-7ff2be2b3b1b: order 42 is paid
	// refused: wrong-app
}

// A test of your own handler signs messages with a Signer.
func ExampleSigner() {
	signer, err := snshook.NewSigner()
	if err != nil {
		panic(err)
	}
	body, err := signer.Sign(snshook.Message{
		TopicArn: "arn:aws:sns:eu-west-1:123456789012:orders",
		Message:  "order 42 is paid",
	})
	fmt.Println(len(body) > 0, err)
	// Output: true <nil>
}

// An operator confirms a subscription, for example with a command of the service, after a look at its topic.
func ExampleVerifier_Confirm() {
	signer, err := snshook.NewSigner()
	if err != nil {
		panic(err)
	}
	var waiting []byte // a service stores it where its operator finds it
	sns, err := snshook.New(snshook.Config{
		TopicArns:    []string{"arn:aws:sns:eu-west-1:123456789012:orders"},
		Subscription: func(body []byte) { waiting = body },
		Transport:    signer, // for this example only
	})
	if err != nil {
		panic(err)
	}
	body, err := signer.Sign(snshook.Message{
		TopicArn: "arn:aws:sns:eu-west-1:123456789012:orders",
		Type:     "SubscriptionConfirmation",
	})
	if err != nil {
		panic(err)
	}
	if _, err := sns.Verify(context.Background(), &webhook.Delivery{Body: body, Time: time.Now()}); err != nil {
		panic(err)
	}
	fmt.Println(sns.Confirm(context.Background(), waiting))
	// Output: <nil>
}
