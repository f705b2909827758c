package githubhook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
)

// GitHub signs the body and not the ID. The same body with a new ID has the same alias, so it is parked as known
// content.
func ExampleVerifier() {
	const hookSecret = "a random secret of the hook"
	verifier, err := githubhook.New(githubhook.Config{
		Endpoint: "releases-hook", Topic: "release",
		Secrets: []string{hookSecret},
	})
	if err != nil {
		panic(err)
	}
	// The receiver of package webhook makes the Delivery of an HTTP request. A test signs it.
	body := []byte(`{"action":"published","release":{"id":17}}`)
	var aliases []string
	for _, id := range []string{"72d3162e-cc78-11e3-81ab-4c9367dc0958", "an-attackers-new-id"} {
		header := githubhook.Sign(hookSecret, id, "release", body)
		events, err := verifier.Verify(context.Background(),
			&webhook.Delivery{Header: header, Body: body, Time: time.Now()})
		if err != nil {
			panic(err)
		}
		fmt.Println(events[0].Message.Tenant, events[0].Message.Topic, events[0].Message.ID)
		aliases = append(aliases, events[0].Message.Aliases...)
	}
	fmt.Println("same alias:", aliases[0] == aliases[1])
	// Output:
	// github/releases-hook release 72d3162e-cc78-11e3-81ab-4c9367dc0958
	// github/releases-hook release an-attackers-new-id
	// same alias: true
}
