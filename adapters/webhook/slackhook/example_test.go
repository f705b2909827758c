package slackhook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/slackhook"
)

// Slack checks a URL once, and then sends events to it.
func ExampleVerifier() {
	const signingSecret = "0123456789abcdef0123456789abcdef" // from the app's settings, under Basic Information
	verifier, err := slackhook.New(slackhook.Config{Secrets: []string{signingSecret}})
	if err != nil {
		panic(err)
	}
	for _, body := range []string{
		`{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV"}`,
		`{"type":"event_callback","event_id":"Ev08MFMKH6","api_app_id":"A1","event_time":1772359198,"event":{"type":"app_mention"}}`,
	} {
		// The receiver of package webhook makes the Delivery of an HTTP request. A test signs it.
		header := slackhook.Sign(signingSecret, time.Now(), []byte(body))
		events, err := verifier.Verify(context.Background(),
			&webhook.Delivery{Header: header, Body: []byte(body), Time: time.Now()})
		if err != nil {
			panic(err)
		}
		if event := events[0]; event.Drop != "" {
			fmt.Printf("%s: reply %s\n", event.Drop, event.Reply.Body)
		} else {
			fmt.Println(event.Message.Tenant, event.Message.ID, event.Message.Topic)
		}
	}
	// Output:
	// Slack's check of the URL: reply 3eZbrw1aBm2rZgRNFdxV
	// slack/A1 Ev08MFMKH6 app_mention
}
