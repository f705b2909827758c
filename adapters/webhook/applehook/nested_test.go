package applehook_test

import (
	"encoding/json"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// The signed parts of a notification are verified like the whole.
func TestVerifyNested(t *testing.T) {
	c, other := newChain(t), newChain(t)
	noMark := newChainUnder(t, c.root, func(leaf, _ *options) { leaf.marks = nil })
	part := func(name string, jws any) []byte {
		return body(t, c.sign(t, with(notification(), m{"data": with(data(), m{name: jws})})))
	}
	const tx, renew, app = "signedTransactionInfo", "signedRenewalInfo", "signedAppTransactionInfo"
	appTransaction := m{
		"bundleId": bundle, "appAppleId": appID, "receiptType": "Production",
		"receiptCreationDate": signed.UnixMilli(), "appTransactionId": "704",
	}
	appPart := func(jws any) []byte {
		return body(t, c.sign(t, with(notification(), m{"data": nil, "appData": with(data(), m{app: jws})})))
	}
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{
			"case 56: transaction signed by another chain", part(tx, other.sign(t, transaction())), webhook.BadSignature,
			"data.signedTransactionInfo",
		},
		{
			"case 56: transaction signed by a developer", part(tx, noMark.sign(t, transaction())), webhook.BadSignature,
			"lacks",
		},
		{"case 56: transaction of another bundle", part(tx, c.sign(t, with(transaction(), m{"bundleId": "com.example.other"}))), webhook.WrongApp, "com.example.other"},
		{
			"case 56: transaction without a bundle", part(tx, c.sign(t, with(transaction(), m{"bundleId": nil}))),
			webhook.WrongApp, "bundleId",
		},
		{
			"R8: transaction of the sandbox", part(tx, c.sign(t, with(transaction(), m{"environment": "Sandbox"}))),
			webhook.WrongApp, "Sandbox",
		},
		{"R8: transaction without a signature", part(tx, "x"), webhook.Unsigned, "1 parts"},
		{"R8: empty transaction", part(tx, ""), webhook.Unsigned, "1 parts"},
		{"R8: transaction as an object", part(tx, transaction()), webhook.Malformed, "signedTransactionInfo"},
		{"R8: transaction that is not JSON", part(tx, c.sign(t, "hello")), webhook.Malformed, "signedTransactionInfo"},
		{"case 71: transaction with a duplicate name", part(tx, c.sign(t, `{"bundleId":"x",`+string(toJSON(t, transaction()))[1:])), webhook.Malformed, "twice"},
		{
			"R8: renewal signed by another chain", part(renew, other.sign(t, renewal())), webhook.BadSignature,
			"data.signedRenewalInfo",
		},
		{
			"R8: renewal of the sandbox", part(renew, c.sign(t, with(renewal(), m{"environment": "Sandbox"}))),
			webhook.WrongApp, "Sandbox",
		},
		{
			"R8: app transaction signed by another chain", appPart(other.sign(t, appTransaction)), webhook.BadSignature,
			"appData.signedAppTransactionInfo",
		},
		{
			"R8: app transaction of another bundle", appPart(c.sign(t, with(appTransaction, m{"bundleId": "x"}))),
			webhook.WrongApp, "bundleId",
		},
		{
			"R8: app transaction of another app", appPart(c.sign(t, with(appTransaction, m{"appAppleId": 7}))),
			webhook.WrongApp, "appAppleId",
		},
		{
			"R8: app transaction of the sandbox", appPart(c.sign(t, with(appTransaction, m{"receiptType": "Sandbox"}))),
			webhook.WrongApp, "receiptType",
		},
		{"case 57: transaction signed in the far future", part(tx, c.sign(t, with(transaction(), m{"signedDate": notAfter.AddDate(50, 0, 0).UnixMilli()}))), webhook.BadSignature, "expired"},
		{"case 57: transaction signed at 1e30", part(tx, c.sign(t, with(transaction(), m{"signedDate": json.RawMessage("1e30")}))), webhook.BadTime, "signedDate"},
		{
			"R8: transactionId is a number", part(tx, c.sign(t, with(transaction(), m{"transactionId": 1}))),
			webhook.Malformed, "transactionId",
		},
	})
	t.Run("R8: an app transaction", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c), appPart(c.sign(t, appTransaction)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := applehook.Decode(&event.Message)
		if err != nil || n.AppTransaction == nil || n.AppTransaction.AppTransactionID != "704" ||
			n.AppData.BundleID != bundle {
			t.Errorf("%+v, %v", n, err)
		}
	})
	t.Run("R8: null is no transaction", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c), part(tx, json.RawMessage("null")))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := applehook.Decode(&event.Message); err != nil || n.Transaction != nil {
			t.Error(n, err)
		}
	})
}
