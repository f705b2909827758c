// Package verifiers has checks that the tests of several webhook verifiers share.
package verifiers

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
)

// Verify also checks what holds for all calls of Verify: that it returns either events or an error that Refuse made,
// and that it changes nothing.
func Verify(t testing.TB, v webhook.Verifier, h http.Header, body string,
	at time.Time,
) ([]webhook.Event, webhook.Refusal) {
	t.Helper()
	d := &webhook.Delivery{Header: h.Clone(), Body: []byte(body), Time: at}
	events, err := v.Verify(t.Context(), d)
	if !reflect.DeepEqual(d, &webhook.Delivery{Header: h, Body: []byte(body), Time: at}) {
		// not cmp.Diff: its coverage is random
		t.Errorf("Verify changed the delivery: %+v", d)
	}
	switch {
	case err == nil && len(events) == 0:
		t.Error("neither events nor an error")
	case err != nil && len(events) > 0:
		t.Errorf("both events and the error %v", err)
	case err != nil && webhook.RefusalOf(err) == "":
		t.Errorf("an error that would be answered with 503: %v", err)
	}
	return events, webhook.RefusalOf(err)
}

// VerifyOne is Verify for a sender whose deliveries have one event each.
func VerifyOne(t testing.TB, v webhook.Verifier, h http.Header, body string,
	at time.Time,
) (webhook.Event, webhook.Refusal) {
	t.Helper()
	events, refusal := Verify(t, v, h, body, at)
	if refusal != "" {
		return webhook.Event{}, refusal
	}
	if len(events) != 1 {
		t.Fatalf("%d events", len(events))
	}
	return events[0], ""
}

// CheckNew checks the results of a New: v is nil if and only if there is an error. The error has the texts wants and
// not the secret; no wants: New must accept its Config.
func CheckNew[V any](t testing.TB, v *V, err error, wants []string, secret string) {
	t.Helper()
	if wants == nil {
		if v == nil || err != nil {
			t.Errorf("New = %v, %v", v, err)
		}
		return
	}
	if v != nil || err == nil {
		t.Fatalf("New = %v, %v", v, err)
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q does not contain %q", err, want)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error contains the secret: %v", err)
	}
}

// Change returns a copy of h in which the header name has these values.
func Change(h http.Header, name string, values ...string) http.Header {
	h = h.Clone()
	h.Del(name)
	for _, value := range values {
		h.Add(name, value)
	}
	return h
}

// Outcomes are the results of the events that a consumer got.
type Outcomes struct {
	Handled []string // IDs
	Parked  []string // IDs, each with the cause
}

// NewConsumer returns a consumer with a store in memory, and its Outcomes. It processes one event at a time.
func NewConsumer(t testing.TB) (*consumer.Consumer[*deduptest.Tx], *Outcomes) {
	t.Helper()
	all := &Outcomes{}
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "events", Store: consumertest.NewStore(), Key: consumer.MessageID,
		Handle: func(_ context.Context, _ *deduptest.Tx, m *consumer.Message) error {
			all.Handled = append(all.Handled, m.ID)
			return nil
		},
		Trace: &consumer.Trace{Done: func(_ context.Context, d *consumer.Delivery, outcomes []consumer.MessageOutcome) {
			for i, o := range outcomes {
				if o.Outcome == observe.Parked {
					all.Parked = append(all.Parked, d.Messages[i].ID+" "+string(o.Cause))
				}
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, all
}

// TestRotation checks a verifier while its sender changes the secret. refusal verifies a delivery signed by signer with
// a verifier that has these secrets.
func TestRotation(t *testing.T, current, old, stranger string,
	refusal func(t *testing.T, secrets []string, signer string) webhook.Refusal,
) {
	for _, c := range []struct {
		name    string
		secrets []string
		signer  string
		want    webhook.Refusal
	}{
		{"old", []string{current, old}, old, ""},
		{"new", []string{current, old}, current, ""},
		{"neither", []string{current, old}, stranger, webhook.BadSignature},
		{"old, after its removal", []string{current}, old, webhook.BadSignature},
	} {
		t.Run("case 53: "+c.name, func(t *testing.T) {
			if got := refusal(t, c.secrets, c.signer); got != c.want {
				t.Errorf("refused as %q, want %q", got, c.want)
			}
		})
	}
}
