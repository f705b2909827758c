package webhooks_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/adapters/webhook/applehook/appletest"
	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
	"github.com/txonce/txonce/adapters/webhook/pubsubhook"
	"github.com/txonce/txonce/adapters/webhook/shopifyhook"
	"github.com/txonce/txonce/adapters/webhook/slackhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
	"github.com/txonce/txonce/adapters/webhook/standardhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/adapters/webhook/twiliohook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/outbox"
)

const (
	publicURL = "https://hooks.example.com"
	secret    = "0123456789abcdef0123456789abcdef"
)

// reply is a golden response.
type reply struct {
	Status     int
	Type, Body string
}

var (
	empty   = reply{Status: http.StatusOK}
	refused = reply{http.StatusBadRequest, "text/plain; charset=utf-8", "refused\n"}
)

// delivery is a request of a sender.
type delivery struct {
	header http.Header
	body   []byte
}

// source is a sender with a verifier.
type source struct {
	name      string
	verifier  webhook.Verifier
	inbox     bool // its events have no signed time
	event     delivery
	forged    delivery
	want      reply
	handshake delivery // body nil: it has none
	answer    reply
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// altered is d with one byte of its body changed, in a place where the JSON or form stays readable.
func altered(d delivery, from, to string) delivery {
	body := bytes.Replace(d.body, []byte(from), []byte(to), 1)
	if bytes.Equal(body, d.body) {
		panic(from + " is not in the body")
	}
	return delivery{d.header, body}
}

func sources() []source {
	now := time.Now()
	signer := must(snshook.NewSigner())
	const topic = "arn:aws:sns:eu-west-1:123456789012:orders"
	authority, forger := must(appletest.NewAuthority()), must(appletest.NewAuthority())
	renewal := appletest.Notification{Type: "DID_RENEW", UUID: "5d30ef22", BundleID: "com.example.app", AppAppleID: 7}
	const subscription, account = "projects/p/subscriptions/orders", "push@p.iam.gserviceaccount.com"
	order := []byte(`{"id":"order_1","type":"order.paid"}`)
	const whsec = "whsec_dGhlIHNlY3JldCBvZiBhbiBleGFtcGxlLCAzMg=="
	stripe := stripehook.Event{ID: "evt_1", Type: "invoice.paid", Livemode: true, Object: "in_1"}.Body(nil)
	const stripeSecret = "whsec_copied0from1the2dashboard"
	form := url.Values{"MessageSid": {"SM00000000000000000000000000000002"}, "MessageStatus": {"sent"}}
	square := must(hmachook.New(hmachook.Config{
		Name: "square", Secrets: []string{secret}, SignatureHeader: "X-Signature",
		SignatureEncoding: hmachook.Hex, IDPaths: []string{"id"},
	}))
	google := must(pubsubhook.NewSigner())
	pushed := func(audience string) delivery {
		h, body, err := google.Sign(pubsubhook.Push{
			Subscription: subscription, Audience: audience,
			ServiceAccount: account, Data: order,
		}, now)
		if err != nil {
			panic(err)
		}
		return delivery{h, body}
	}
	ping := []byte(`{"zen":"Design for failure.","hook_id":1,"hook":{"id":1}}`)
	slack := []byte(`{"type":"event_callback","event_id":"Ev1","api_app_id":"A1","event_time":` +
		strconv.FormatInt(now.Unix(), 10) +
		`,"event":{"type":"app_mention"}}`)
	challenge := []byte(`{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV"}`)

	all := []source{
		{
			name: "standard", inbox: true, want: empty,
			verifier: must(standardhook.New(standardhook.Config{Sender: "clerk", Secrets: []string{whsec}})),
			event:    delivery{must(standardhook.Sign(whsec, "msg_1", now, order)), order},
		}, {
			name: "stripe", want: empty,
			verifier: must(stripehook.New(stripehook.Config{Secrets: []stripehook.Secret{{Value: stripeSecret, Mode: stripehook.Live}}})),
			event:    delivery{http.Header{"Stripe-Signature": {stripehook.Sign(stripe, now, stripeSecret)}}, stripe},
		}, {
			name: "github", inbox: true, want: empty,
			verifier:  must(githubhook.New(githubhook.Config{Endpoint: "hook", Topic: "release", Secrets: []string{secret}})),
			event:     delivery{githubhook.Sign(secret, "72d3162e", "release", order), order},
			handshake: delivery{githubhook.Sign(secret, "72d3162f", "ping", ping), ping}, answer: empty,
		}, {
			name: "shopify", inbox: true, want: empty,
			verifier: must(shopifyhook.New(shopifyhook.Config{Endpoint: "orders", Topic: "orders/paid", Secrets: []string{secret}})),
			event:    delivery{shopifyhook.Sign(secret, "98880550", "orders/paid", "acme.myshopify.com", order), order},
		}, {
			name: "slack", want: empty,
			verifier:  must(slackhook.New(slackhook.Config{Secrets: []string{secret}})),
			event:     delivery{slackhook.Sign(secret, now, slack), slack},
			handshake: delivery{slackhook.Sign(secret, now, challenge), challenge},
			answer:    reply{http.StatusOK, "text/plain; charset=utf-8", "3eZbrw1aBm2rZgRNFdxV"},
		}, {
			name: "sns", want: empty,
			verifier: must(snshook.New(snshook.Config{TopicArns: []string{topic}, Transport: signer})),
			event:    delivery{nil, must(signer.Sign(snshook.Message{TopicArn: topic, Message: "order.paid"}))},
			handshake: delivery{nil, must(signer.Sign(snshook.Message{
				TopicArn: topic, Message: "You have chosen to subscribe",
				Type: "SubscriptionConfirmation",
			}))},
			answer: empty,
		}, {
			name: "pubsub", want: empty,
			verifier: must(pubsubhook.New(pubsubhook.Config{
				Subscriptions: []string{subscription}, Audiences: []string{publicURL},
				ServiceAccounts: []string{account}, Transport: google,
			})),
			event:  pushed(publicURL),
			forged: pushed(publicURL + "/other"), // the token does not cover the body
		}, {
			name: "twilio", inbox: true, want: reply{Status: http.StatusNoContent},
			verifier: must(twiliohook.New(twiliohook.Config{AuthTokens: []string{secret}})),
			event: delivery{
				http.Header{"X-Twilio-Signature": {twiliohook.Sign(secret, publicURL+"/hook", form)}},
				[]byte(form.Encode()),
			},
		}, {
			name: "hmac", inbox: true, want: empty,
			verifier: square,
			event:    delivery{square.Sign("", order, now), order},
		}, {
			name: "apple", want: empty,
			verifier: must(applehook.New(applehook.Config{
				BundleID: "com.example.app", AppAppleID: 7, Environment: applehook.Production,
				Roots: authority.Roots(),
			})),
			event:     delivery{nil, must(authority.Body(renewal))},
			forged:    delivery{nil, must(forger.Body(renewal))},
			handshake: delivery{nil, must(authority.Body(appletest.Notification{Type: "TEST", BundleID: "com.example.app", AppAppleID: 7}))},
			answer:    empty,
		},
	}
	for i, from := range []string{"paid", "paid", "paid", "paid", "app_mention", "paid", "", "sent", "paid"} {
		if from == "" {
			continue
		}
		all[i].forged = altered(all[i].event, from, "lost")
	}
	return all
}

// enqueued counts what an Inbox forwards.
type enqueued struct{}

func (enqueued) Enqueue(_ context.Context, tx *deduptest.Tx, _ ...outbox.Message) error {
	return tx.Add("effect")
}

func newReceiver(t *testing.T, s source, store *consumertest.Store, trace *webhook.Trace) *webhook.Receiver {
	t.Helper()
	const window = 500 * 24 * time.Hour
	logger := slog.New(slog.DiscardHandler)
	var processor driver.BatchProcessor
	var err error
	if s.inbox {
		processor, err = webhook.NewInbox(webhook.InboxConfig[*deduptest.Tx]{
			Name: "billing", Store: store, Outbox: enqueued{}, Window: window, Logger: logger,
		})
	} else {
		processor, err = consumer.New(consumer.Config[*deduptest.Tx]{
			Name: "billing", Store: store, Key: consumer.MessageID, Window: window, Logger: logger,
			Handle: func(_ context.Context, tx *deduptest.Tx, _ *consumer.Message) error { return tx.Add("effect") },
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := webhook.New(webhook.Config{
		Verifier: s.verifier, Processor: processor, PublicURL: publicURL, Logger: logger, Trace: trace,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSources(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			store := consumertest.NewStore()
			var duplicates, dropped atomic.Int32
			receiver := newReceiver(t, s, store, &webhook.Trace{
				Duplicate: func(context.Context, webhook.TraceEvent) { duplicates.Add(1) },
				Dropped:   func(context.Context, webhook.TraceEvent) { dropped.Add(1) },
			})
			send := func(d delivery) reply {
				req := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(d.body))
				if d.header != nil {
					req.Header = d.header.Clone()
				}
				w := httptest.NewRecorder()
				receiver.ServeHTTP(w, req)
				return reply{w.Code, w.Header().Get("Content-Type"), w.Body.String()}
			}
			check := func(name string, want, got reply, effects int, duplicate int32) {
				t.Helper()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got)\n%s", name, diff)
				}
				if n := store.Database().Count("effect"); n != effects || duplicates.Load() != duplicate {
					t.Errorf("%s: %d effects and %d duplicates, want %d and %d", name, n, duplicates.Load(), effects,
						duplicate)
				}
			}
			check("case 49: a forged delivery", refused, send(s.forged), 0, 0)
			if s.handshake.body != nil {
				check("case 74: the handshake", s.answer, send(s.handshake), 0, 0)
				if dropped.Load() != 1 {
					t.Errorf("%d handshakes were dropped, want 1", dropped.Load())
				}
			}
			check("E24: the delivery", s.want, send(s.event), 1, 0)
			check("case 65: the delivery again", s.want, send(s.event), 1, 1)
			check("case 49: a forged delivery after it", refused, send(s.forged), 1, 1)
			if letters, err := store.DeadLetters(t.Context(), consumer.DeadLetterFilter{}); err != nil ||
				len(letters) != 0 {
				t.Errorf("dead letters %v, %v", letters, err)
			}
		})
	}
}
