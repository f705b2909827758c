package applehook_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// The identity of the app, the environment and the kind of a notification.
func TestVerifyIdentity(t *testing.T) {
	c := newChain(t)
	sign := func(n m) []byte { return body(t, c.sign(t, n)) }
	dataWith := func(members m) []byte { return sign(with(notification(), m{"data": with(data(), members)})) }
	token := m{"externalPurchaseId": "b2158121", "bundleId": bundle, "appAppleId": appID, "tokenCreationDate": 1}
	without := with(notification(), m{"data": nil})
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"another bundle", dataWith(m{"bundleId": "com.example.other"}), webhook.WrongApp, "com.example.other"},
		{"a bundle that begins alike", dataWith(m{"bundleId": bundle + ".x"}), webhook.WrongApp, "bundle"},
		{"no bundle", dataWith(m{"bundleId": nil}), webhook.WrongApp, "bundle"},
		{"another app", dataWith(m{"appAppleId": 7}), webhook.WrongApp, "app 7"},
		{"no app in production", dataWith(m{"appAppleId": nil}), webhook.WrongApp, "app 0"},
		{"case 58: the sandbox", dataWith(m{"environment": "Sandbox", "appAppleId": nil}), webhook.WrongApp, "Sandbox"},
		{"signed by Xcode", dataWith(m{"environment": "Xcode"}), webhook.WrongApp, "Xcode"},
		{"no environment", dataWith(m{"environment": nil}), webhook.WrongApp, "environment"},
		{"the bundle counts before the environment", dataWith(m{"bundleId": "com.example.other", "environment": "Sandbox"}), webhook.WrongApp, "bundle"},
		{"no identity", sign(without), webhook.WrongApp, "names no app"},
		{
			"all null", sign(with(without, m{"data": json.RawMessage("null"), "summary": json.RawMessage("null")})),
			webhook.WrongApp, "names no app",
		},
		{
			"the first object counts", sign(with(notification(), m{"data": m{}, "summary": data()})), webhook.WrongApp,
			"bundle",
		},
		{"sandbox token", sign(with(without, m{"externalPurchaseToken": with(token, m{"externalPurchaseId": "SANDBOX_b2158121"})})), webhook.WrongApp, "Sandbox"},
		{
			"token of another app", sign(with(without, m{"externalPurchaseToken": with(token, m{"appAppleId": 7})})),
			webhook.WrongApp, "app 7",
		},
		{"data is a string", sign(with(notification(), m{"data": "x"})), webhook.Malformed, "data"},
		{"bundle is a number", dataWith(m{"bundleId": 7}), webhook.Malformed, "bundleId"},
		{"environment is a number", dataWith(m{"environment": 7}), webhook.Malformed, "environment"},
		{
			"case 71: the app as a float", dataWith(m{"appAppleId": json.RawMessage("1234567890.0")}), webhook.Malformed,
			"appAppleId",
		},
		{
			"case 71: the app as a huge integer", dataWith(m{"appAppleId": json.RawMessage("12345678901234567890123")}),
			webhook.Malformed, "appAppleId",
		},
		{"token ID is a number", sign(with(without, m{"externalPurchaseToken": with(token, m{"externalPurchaseId": 7})})), webhook.Malformed, "externalPurchaseId"},
	})
	for _, tt := range []struct {
		name string
		n    m
	}{
		{"data", notification()},
		{"summary", with(without, m{"summary": with(data(), m{"requestIdentifier": "r", "succeededCount": 5})})},
		{"externalPurchaseToken", with(without, m{"externalPurchaseToken": token})},
		{"appData", with(without, m{"appData": data()})},
		{"unknown type and subtype (R13)", with(notification(), m{"notificationType": "SOMETHING_NEW", "subtype": "VERY_NEW"})},
		{"unknown members (R13)", with(notification(), m{"more": m{"deep": []any{1, "x", nil}}})},
		{"no subtype", with(notification(), m{"subtype": nil})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			event, err := verify(t, newVerifier(t, c), sign(tt.n))
			if err != nil {
				t.Fatal(err)
			}
			if event.Drop != "" || event.Message.Topic != tt.n["notificationType"] {
				t.Errorf("Drop %q, topic %q", event.Drop, event.Message.Topic)
			}
			if n, err := applehook.Decode(&event.Message); err != nil || n.Type != tt.n["notificationType"] {
				t.Errorf("Decode: %+v, %v", n, err)
			}
		})
	}
}

// Sandbox notifications at a production endpoint, and the other way round.
func TestVerifyEnvironments(t *testing.T) {
	c := newChain(t)
	sandbox := with(notification(), m{"data": with(data(), m{
		"environment": "Sandbox", "appAppleId": nil, "signedTransactionInfo": c.sign(t,
			with(transaction(), m{"environment": "Sandbox"})),
	})})
	inSandbox := func(cfg *applehook.Config) { cfg.Environment, cfg.AppAppleID = applehook.Sandbox, 0 }
	drop := func(cfg *applehook.Config) { cfg.DropSandbox = true }

	t.Run("case 58: dropped with 200 if so configured", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c, drop), body(t, c.sign(t, sandbox)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(event.Drop, "sandbox") || event.Message.Tenant != "apple/Sandbox/com.example.app" {
			t.Errorf("Drop %q, tenant %q", event.Drop, event.Message.Tenant)
		}
	})
	t.Run("case 58: the sandbox of another app is refused all the same", func(t *testing.T) {
		other := with(sandbox, m{"data": with(sandbox["data"].(m), m{"bundleId": "com.example.other"})})
		if _, err := verify(t, newVerifier(t, c, drop),
			body(t, c.sign(t, other))); webhook.RefusalOf(err) != webhook.WrongApp {
			t.Error(err)
		}
	})
	t.Run("case 58: a production notification is never dropped", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c, drop), body(t, c.sign(t, full(t, c))))
		if err != nil || event.Drop != "" {
			t.Error(event.Drop, err)
		}
	})
	t.Run("the sandbox's endpoint takes the sandbox", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c, inSandbox), body(t, c.sign(t, sandbox)))
		if err != nil || event.Drop != "" || event.Message.Tenant != "apple/Sandbox/com.example.app" {
			t.Error(event, err)
		}
	})
	t.Run("the sandbox's endpoint refuses production", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, c, inSandbox),
			body(t, c.sign(t, full(t, c)))); webhook.RefusalOf(err) != webhook.WrongApp {
			t.Error(err)
		}
	})
	t.Run("R11: TEST is verified and dropped", func(t *testing.T) {
		test := body(t, c.sign(t, with(notification(), m{"notificationType": "TEST", "subtype": nil})))
		event, err := verify(t, newVerifier(t, c), test)
		if err != nil || event.Drop != "test notification" || event.Message.ID != uuid {
			t.Error(event, err)
		}
		event, err = verify(t, newVerifier(t, c, func(cfg *applehook.Config) { cfg.HandleTest = true }), test)
		if err != nil || event.Drop != "" {
			t.Error(event, err)
		}
		if _, err := verify(t, newVerifier(t, newChain(t)), test); webhook.RefusalOf(err) != webhook.BadSignature {
			t.Errorf("a forged TEST: %v", err)
		}
	})
}
