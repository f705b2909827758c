package pubsubhook_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/pubsubhook"
)

// A Verifier belongs into webhook.Config.Verifier. Here it is called by hand, with a notification of Google Play that a
// Signer signed.
func Example() {
	signer, err := pubsubhook.NewSigner()
	if err != nil {
		panic(err)
	}
	play, err := pubsubhook.New(pubsubhook.Config{
		Subscriptions:   []string{"projects/my-project/subscriptions/play"},
		Audiences:       []string{"https://hooks.example.com/play"},
		ServiceAccounts: []string{"push@my-project.iam.gserviceaccount.com"},
		Transport:       signer, // for this example only: requests go to the signer instead of Google
	})
	if err != nil {
		panic(err)
	}
	receive := func(audience string) {
		header, body, err := signer.Sign(pubsubhook.Push{
			Subscription: "projects/my-project/subscriptions/play", Audience: audience,
			ServiceAccount: "push@my-project.iam.gserviceaccount.com", MessageID: "136969346945",
			Data: []byte(`{"version":"1.0","packageName":"com.example.app","eventTimeMillis":"1780000000000","subscriptionNotification":{"notificationType":4}}`),
		}, time.Now())
		if err != nil {
			panic(err)
		}
		events, err := play.Verify(context.Background(),
			&webhook.Delivery{Header: header, Body: body, Time: time.Now()})
		if err != nil {
			fmt.Println("refused:", webhook.RefusalOf(err))
			return
		}
		fmt.Printf("%s: %.44s\n", events[0].Message.ID, events[0].Message.Payload)
	}
	receive("https://hooks.example.com/play")
	receive("https://hooks.example.com/other")
	// Output:
	// 136969346945: {"version":"1.0","packageName":"com.example.
	// refused: wrong-app
}

// A test of your own handler signs messages with a Signer.
func ExampleSigner() {
	signer, err := pubsubhook.NewSigner()
	if err != nil {
		panic(err)
	}
	header, body, err := signer.Sign(pubsubhook.Push{Subscription: "projects/p/subscriptions/play", Data: []byte("{}")},
		time.Now())
	fmt.Println(http.Header.Get(header, "Content-Type"), len(body) > 0, err)
	// Output: application/json true <nil>
}
