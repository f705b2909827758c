package twiliohook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/twiliohook"
)

// A Verifier belongs into webhook.Config.Verifier. Here it is called by hand, with a request that Sign signed.
func Example() {
	const authToken = "0123456789abcdef0123456789abcdef"
	twilio, err := twiliohook.New(twiliohook.Config{AuthTokens: []string{authToken}})
	if err != nil {
		panic(err)
	}
	form := url.Values{
		"MessageSid": {"SM00000000000000000000000000000002"}, "MessageStatus": {"delivered"},
		"To": {"+491701234567"},
	}
	const target = "https://hooks.example.com/twilio"
	receive := func(signature string) {
		d := &webhook.Delivery{
			Header: http.Header{"X-Twilio-Signature": {signature}}, Body: []byte(form.Encode()), URL: target,
			Time: time.Now(),
		}
		events, err := twilio.Verify(context.Background(), d)
		if err != nil {
			fmt.Println("refused:", webhook.RefusalOf(err))
			return
		}
		fmt.Println(events[0].Message.ID, events[0].Message.Topic)
	}
	receive(twiliohook.Sign(authToken, target, form))
	receive(twiliohook.Sign(strings.Repeat("0", 32), target, form))
	// Output:
	// SM00000000000000000000000000000002:delivered message.delivered
	// refused: bad-signature
}

// A voice webhook comes with CallStatus=in-progress for each recording, so the recording identifies the event.
func ExampleConfig_identify() {
	recordings := func(form url.Values) (twiliohook.Identity, error) {
		id := form.Get("RecordingSid")
		if id == "" {
			return twiliohook.Identity{}, errors.New("not about a recording")
		}
		return twiliohook.Identity{
			ID:    id + ":" + form.Get("RecordingStatus"),
			Topic: "recording." + form.Get("RecordingStatus"),
		}, nil
	}
	_, err := twiliohook.New(twiliohook.Config{
		AuthTokens: []string{"0123456789abcdef0123456789abcdef"},
		Identify:   recordings,
	})
	fmt.Println(err)
	// Output: <nil>
}

func ExampleSignJSON() {
	target, signature := twiliohook.SignJSON("0123456789abcdef0123456789abcdef", "https://hooks.example.com/twilio",
		[]byte(`{}`))
	fmt.Println(target)
	fmt.Println(len(signature))
	// Output:
	// https://hooks.example.com/twilio?bodySHA256=44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a
	// 28
}
