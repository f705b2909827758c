package standardhook_test

import (
	"context"
	"fmt"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/standardhook"
)

// The sender signs the event's ID, the time and the body. A delivery with another body is refused.
func ExampleVerifier() {
	const signingSecret = "whsec_dGhlIHNlY3JldCBvZiBhbiBleGFtcGxlLCAzMg==" // from the sender's settings
	verifier, err := standardhook.New(standardhook.Config{Sender: "clerk", Secrets: []string{signingSecret}})
	if err != nil {
		panic(err)
	}
	// The receiver of package webhook makes the Delivery of an HTTP request. A test signs it.
	body := []byte(`{"type":"user.created","data":{"id":"user_7"}}`)
	header, err := standardhook.Sign(signingSecret, "msg_1", time.Now(), body)
	if err != nil {
		panic(err)
	}
	events, err := verifier.Verify(context.Background(),
		&webhook.Delivery{Header: header, Body: body, Time: time.Now()})
	if err != nil {
		panic(err)
	}
	fmt.Println(events[0].Message.Tenant, events[0].Message.ID, events[0].Message.Topic)

	body = []byte(`{"type":"user.deleted"}`)
	_, err = verifier.Verify(context.Background(), &webhook.Delivery{Header: header, Body: body, Time: time.Now()})
	fmt.Println(webhook.RefusalOf(err))
	// Output:
	// clerk msg_1 user.created
	// bad-signature
}
