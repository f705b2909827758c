package pubsubhook_test

import (
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/dedup"
)

// For any header and body, the Verifier does not panic, refuses a forged token, and returns only messages that can be
// claimed.
func FuzzVerify(f *testing.F) {
	v := newVerifier(f, &network{})
	right := push(f)
	token := right.Header.Get("Authorization")
	f.Add(token, string(right.Body))
	f.Add("Bearer e30.e30.e30", `{"message":{"messageId":"1","message_id":1},"subscription":"`+play+`"}`)
	f.Add("Bearer a.b.c", `{}`)
	f.Fuzz(func(t *testing.T, authorization, body string) {
		d := push(t)
		d.Body = []byte(body)
		if events, err := v.Verify(t.Context(), d); err == nil {
			m := events[0].Message
			if err := (dedup.Key{Consumer: "c", Tenant: m.Tenant, ID: m.ID}).Validate(); err != nil {
				t.Errorf("accepted %+v: %v", m, err)
			}
		}
		if authorization == token {
			return
		}
		d = push(t)
		d.Header.Set("Authorization", authorization)
		if events, err := v.Verify(t.Context(), d); err == nil && len(authorization) > 7 &&
			authorization[7:] != token[7:] || webhook.RefusalOf(err) == "" && err != nil {
			t.Errorf("Verify = %+v, %v", events, err)
		}
	})
}
