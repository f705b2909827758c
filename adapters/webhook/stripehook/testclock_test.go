package stripehook_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
)

// A test clock can be set to any time, and the events that it causes are created then. Their handlers run.
func TestEventsOfTestClocks(t *testing.T) {
	day := 24 * time.Hour
	secrets := stripehook.Config{Secrets: []stripehook.Secret{{Value: testSecret, Mode: stripehook.Test}}}
	for _, ago := range []time.Duration{-400 * day, -30 * day, -time.Hour, 0, 10 * day, 60 * day, 20 * 365 * day} {
		bubble(t, func(t *testing.T, w *world) {
			e := event(1, ago)
			e.Livemode = false
			receive := func() *consumer.Message {
				d := delivery(e.Body(nil), stripehook.Sign(e.Body(nil), time.Now(), testSecret))
				d.Time = time.Now()
				msg := accepted(t, newVerifier(t, secrets), d).Message
				if err := w.billing.ProcessBatch(t.Context(), []*consumer.Message{&msg})[0]; err != nil {
					t.Errorf("created %v ago: %v", ago, err)
				}
				return &msg
			}
			msg := receive()
			if ago >= 0 && ago <= 10*day && !msg.Time.Equal(e.Created) {
				t.Errorf("the time of an ordinary event is %v, want %v", msg.Time, e.Created)
			}
			<-time.After(2 * time.Hour)
			receive()
			w.wantEffects(t, 1)
			w.wantLetters(t)
			// A Backfill lists the event too, if it lists what is ahead.
			w.stripe.add(e)
			w.once(t, w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
				cfg.Verifier, client.APIKey, client.Mode = newVerifier(t, secrets), testKey, stripehook.Test
			}))
			w.wantEffects(t, 1)
			w.wantLetters(t)
		})
	}
	t.Run("by a Backfill alone", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			for i, ago := range []time.Duration{-400 * day, -30 * day, time.Hour} {
				e := event(i, ago)
				e.Livemode = false
				w.stripe.add(e)
			}
			b := w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
				cfg.Verifier, client.APIKey, client.Mode = newVerifier(t, secrets), testKey, stripehook.Test
			})
			w.once(t, b)
			<-time.After(24 * time.Hour)
			w.once(t, b)
			w.wantEffects(t, 3)
			w.wantLetters(t)
		})
	})
	t.Run("live mode has no test clocks", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			if msg := w.receive(t, stripehook.Config{}, event(1, -30*day)); !msg.Time.After(time.Now().Add(29 * day)) {
				t.Errorf("the time is %v", msg.Time)
			}
			w.wantEffects(t, 0)
		})
	})
}

// Events of old API versions have user_id, newer ones account. A webhook's and a Backfill's are one event, in whatever
// order.
func TestUserIDIsTheAccount(t *testing.T) {
	form := func(member string) []byte {
		return fmt.Appendf(nil, `{"id":"evt_00001","object":"event","created":%d,"livemode":true,"type":"invoice.paid",%s,"data":{"object":{"id":"in_1"}}}`,
			time.Now().Add(-time.Hour).Unix(), member)
	}
	for _, tt := range []struct{ webhook, listed, client string }{
		{`"user_id":"acct_2"`, `"account":"acct_2"`, ""},
		{`"account":"acct_2"`, `"user_id":"acct_2"`, ""},
		{`"user_id":"acct_2"`, `"user_id":"acct_2","account":"acct_2"`, ""},
		{`"user_id":"acct_2","account":null`, `"account":"acct_2","user_id":""`, ""},
		// fetched as the account, which the event then does not name
		{`"user_id":"acct_2"`, `"request":null`, "acct_2"},
		{`"user_id":"acct_2"`, `"context":"acct_2"`, ""},
	} {
		bubble(t, func(t *testing.T, w *world) {
			body := form(tt.webhook)
			d := delivery(body, stripehook.Sign(body, time.Now(), liveSecret))
			d.Time = time.Now()
			msg := accepted(t, newVerifier(t, connect), d).Message
			if msg.Tenant != "stripe/live/acct_2" {
				t.Errorf("%s: tenant %q", tt.webhook, msg.Tenant)
			}
			if err := w.billing.ProcessBatch(t.Context(), []*consumer.Message{&msg})[0]; err != nil {
				t.Error(err)
			}
			w.stripe.add(event(1, time.Hour))
			w.stripe.events[0].raw = form(tt.listed)
			w.once(t, w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
				cfg.Verifier, client.Account = newVerifier(t, connect), tt.client
			}))
			if runs := w.took(); len(runs) != 1 {
				t.Errorf("%s, then %s: %d runs, want 1", tt.webhook, tt.listed, len(runs))
			}
			w.wantLetters(t)
		})
	}
	t.Run("two accounts", func(t *testing.T) {
		refused(t, newVerifier(t, connect), signed(form(`"user_id":"acct_2","account":"acct_3"`), liveSecret),
			webhook.Malformed)
	})
}
