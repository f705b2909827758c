package hmachook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
)

// The configs of this file follow what EDGE A5 and the senders' public documentation say. Where these were not clear, a
// comment says so.

// square signs the notification URL followed by the body. Its documentation names 10 seconds for a response, and
// retries for 72 hours (an earlier page) or 24 hours.
func square(key string) hmachook.Config {
	return hmachook.Config{
		Name: "square", Secrets: []string{key},
		SignatureHeader: "x-square-hmacsha256-signature", SignatureEncoding: hmachook.Base64, Signed: "{url}{body}",
		IDPaths: []string{"event_id"}, TopicPath: "type", ScopePath: "merchant_id", CreatedPath: "created_at",
		Horizon: 4 * 24 * time.Hour, GiveUpAfter: 23 * time.Hour, Deadline: 10 * time.Second,
	}
}

// paddle signs its timestamp, a colon and the body. event_id is the same for all destinations of an event,
// notification_id is not. Its documentation names 5 seconds for a response and retries for 3 days, and keeps
// notifications for 90 days, for repeats by hand.
func paddle(secret string) hmachook.Config {
	return hmachook.Config{
		Name: "paddle", Secrets: []string{secret},
		SignatureHeader: "Paddle-Signature", SignatureElement: "h1", ElementSeparator: ";",
		SignatureEncoding: hmachook.Hex,
		TimestampElement:  "ts", Signed: "{timestamp}:{body}",
		IDPaths: []string{"event_id"}, TopicPath: "event_type", CreatedPath: "occurred_at",
		Horizon: 91 * 24 * time.Hour, GiveUpAfter: 71 * time.Hour, Deadline: 5 * time.Second,
	}
}

// revenueCat has the id and type where RevenueCat has them. The form of X-RevenueCat-Signature was not verified: this
// is a header with the hexadecimal HMAC of the body. Take it from their documentation.
func revenueCat(secret string) hmachook.Config {
	return hmachook.Config{
		Name: "revenuecat", Secrets: []string{secret},
		SignatureHeader: "X-RevenueCat-Signature", SignatureEncoding: hmachook.Hex,
		IDPaths: []string{"event.id"}, TopicPath: "event.type",
	}
}

// adyenPlatform is for webhooks of Adyen's platforms, whose raw body is signed. Which field identifies an event differs
// between their types: here it is a field that this test invents. Classic webhooks have a signature for each item, and
// need a Verifier of their own.
func adyenPlatform(key string) hmachook.Config {
	return hmachook.Config{
		Name: "adyen", Secrets: []string{key}, SecretEncoding: hmachook.Hex,
		SignatureHeader: "HmacSignature", SignatureEncoding: hmachook.Base64,
		IDPaths: []string{"data.id", "type"}, TopicPath: "type",
		Reply: webhook.Reply{ContentType: "text/plain", Body: []byte("[accepted]")},
	}
}

// The headers are made here without the package's own Sign, so that both would have to be wrong in the same way.
func TestSenders(t *testing.T) {
	mac := func(key []byte, text string) []byte {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	const key = "key of the tests of senders"
	hexKey := hex.EncodeToString([]byte(key))
	paddleBody := `{"event_id":"evt_1","event_type":"transaction.paid","occurred_at":"2026-05-04T03:02:01.000Z","notification_id":"ntf_1"}`
	squareBody := `{"merchant_id":"M1","type":"payment.updated","event_id":"6a8f","created_at":"2026-05-04T03:02:01Z","data":{}}`
	for _, test := range []struct {
		name                  string
		cfg                   hmachook.Config
		body, header, value   string
		id, tenant, eventType string
	}{
		{
			"Square", square(key), squareBody, "X-Square-Hmacsha256-Signature",
			base64.StdEncoding.EncodeToString(mac([]byte(key), target+squareBody)),
			"6a8f", "square/M1", "payment.updated",
		},
		{
			"Paddle Billing", paddle(key), paddleBody, "Paddle-Signature",
			"ts=1780000000;h1=" + hex.EncodeToString(mac([]byte(key), "1780000000:"+paddleBody)),
			"evt_1", "paddle", "transaction.paid",
		},
		{
			"Paddle Billing, while a secret is replaced", paddle(key), paddleBody, "Paddle-Signature",
			"ts=1780000000;h1=" + strings.Repeat("0", 64) + ";h1=" + hex.EncodeToString(mac([]byte(key),
				"1780000000:"+paddleBody)),
			"evt_1", "paddle", "transaction.paid",
		},
		{
			"like RevenueCat", revenueCat(key), `{"event":{"id":"E1","type":"RENEWAL"}}`, "X-Revenuecat-Signature",
			hex.EncodeToString(mac([]byte(key), `{"event":{"id":"E1","type":"RENEWAL"}}`)),
			"E1", "revenuecat", "RENEWAL",
		},
		{
			"like Adyen's platforms", adyenPlatform(hexKey), `{"type":"a.b","data":{"id":"T1"}}`, "Hmacsignature",
			base64.StdEncoding.EncodeToString(mac([]byte(key), `{"type":"a.b","data":{"id":"T1"}}`)),
			"T1:a.b", "adyen", "a.b",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := newVerifier(t, test.cfg)
			d := &webhook.Delivery{
				Header: http.Header{test.header: {test.value}}, Body: []byte(test.body), URL: target,
				Time: now,
			}
			events, err := v.Verify(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if m := events[0].Message; m.ID != test.id || m.Tenant != test.tenant || m.Topic != test.eventType {
				t.Errorf("%+v", m)
			}
			if test.cfg.CreatedPath != "" && !events[0].Message.Time.Equal(time.Date(2026, 5, 4, 3, 2, 1, 0,
				time.UTC)) {
				t.Errorf("E26: Message.Time is %v", events[0].Message.Time)
			}
			if !strings.Contains(test.value, ";h1=0") && v.Sign(target, d.Body, now).Get(test.header) != test.value {
				t.Errorf("Sign made %v, the sender %q", v.Sign(target, d.Body, now), test.value)
			}
			d.Body = []byte(strings.Replace(test.body, "1", "2", 1))
			if len(d.Body) == 0 || string(d.Body) == test.body {
				d.Body = append([]byte(test.body), ' ')
			}
			refused(t, v, d, webhook.BadSignature)
		})
	}
}

// A Verifier belongs into webhook.Config.Verifier. Here it is called by hand, with a delivery that Sign signed.
func Example() {
	paddle, err := hmachook.New(hmachook.Config{
		Name:              "paddle",
		Secrets:           []string{"pdl_ntfset_example_secret_of_a_destination"},
		SignatureHeader:   "Paddle-Signature", // ts=1780000000;h1=ab…
		SignatureElement:  "h1",
		ElementSeparator:  ";",
		SignatureEncoding: hmachook.Hex,
		TimestampElement:  "ts",
		Signed:            "{timestamp}:{body}",
		IDPaths:           []string{"event_id"},
		TopicPath:         "event_type",
		CreatedPath:       "occurred_at",
		GiveUpAfter:       71 * time.Hour, // its attempts end after 3 days
		Deadline:          5 * time.Second,
	})
	if err != nil {
		panic(err)
	}
	body := []byte(`{"event_id":"evt_1","event_type":"transaction.paid","occurred_at":"2026-05-04T03:02:01.000Z"}`)
	sent := time.Unix(1_780_000_000, 0)
	d := &webhook.Delivery{Header: paddle.Sign("", body, sent), Body: body, Time: sent.Add(time.Second)}
	receive := func() {
		events, err := paddle.Verify(context.Background(), d)
		if err != nil {
			fmt.Println("refused:", webhook.RefusalOf(err))
			return
		}
		fmt.Println(events[0].Message.ID, events[0].Message.Topic)
	}
	receive()
	d.Time = sent.Add(time.Hour) // somebody repeats it later
	receive()
	// Output:
	// evt_1 transaction.paid
	// refused: bad-time
}

// Square signs the URL, so webhook.Config.PublicURL must be set.
func ExampleNew_square() {
	square, err := hmachook.New(hmachook.Config{
		Name:              "square",
		Secrets:           []string{"an example of a signature key"},
		SignatureHeader:   "x-square-hmacsha256-signature",
		SignatureEncoding: hmachook.Base64,
		Signed:            "{url}{body}",
		IDPaths:           []string{"event_id"},
		TopicPath:         "type",
		CreatedPath:       "created_at",
	})
	if err != nil {
		panic(err)
	}
	body := []byte(`{"type":"payment.updated","event_id":"6a8f5f28","created_at":"2026-05-04T03:02:01Z"}`)
	const url = "https://hooks.example.com/square"
	events, err := square.Verify(context.Background(),
		&webhook.Delivery{Header: square.Sign(url, body, time.Now()), Body: body, URL: url, Time: time.Now()})
	if err != nil {
		panic(err)
	}
	fmt.Println(events[0].Message.ID, events[0].Message.Topic)
	// Output: 6a8f5f28 payment.updated
}

// A sender that puts the event's id only into a header: the message has an alias, so that a repeated body with a new id
// is parked.
func ExampleNew_unsignedID() {
	acme, err := hmachook.New(hmachook.Config{
		Name:              "acme",
		Secrets:           []string{"an example of a signing secret"},
		SignatureHeader:   "X-Acme-Signature", // sha256=ab…
		SignaturePrefix:   "sha256=",
		SignatureEncoding: hmachook.Hex,
		IDHeader:          "X-Acme-Delivery",
		Topic:             "order.paid", // an endpoint for one type of events, because their type is in no signed field
	})
	if err != nil {
		panic(err)
	}
	body := []byte(`{"order":42}`)
	header := acme.Sign("", body, time.Now())
	header.Set("X-Acme-Delivery", "d-1")
	events, err := acme.Verify(context.Background(), &webhook.Delivery{Header: header, Body: body, Time: time.Now()})
	if err != nil {
		panic(err)
	}
	fmt.Println(events[0].Message.ID, len(events[0].Message.Aliases))
	// Output: d-1:order.paid 1
}
