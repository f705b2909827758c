package applehook_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// Apple may change the form of a field. The others are read, and that one is named.
func TestDecodeKeepsWhatItUnderstands(t *testing.T) {
	c := newChain(t)
	for _, tt := range []struct {
		name                       string
		data, transaction, renewal m
		want                       map[string]string // path to raw value
	}{
		{"nothing changed", nil, nil, nil, nil},
		{"a fraction of a price", nil, m{"price": 9990.5}, nil, map[string]string{"transaction.price": "9990.5"}},
		{"unknown states", m{"status": 77}, m{"type": "New", "offerType": 99}, m{"expirationIntent": 99}, nil},
		{"a state that became a text", m{"status": "ACTIVE"}, nil, nil, map[string]string{"data.status": `"ACTIVE"`}},
		{
			"several",
			m{"status": true},
			m{"price": "9990", "quantity": m{"n": 1}, "expiresDate": "soon", "revocationReason": "x"},
			m{"eligibleWinBackOfferIds": []any{"a", 1}, "isInBillingRetryPeriod": 1, "renewalDate": 1e30},
			map[string]string{
				"data.status": "true", "transaction.price": `"9990"`, "transaction.quantity": `{"n":1}`,
				"transaction.expiresDate":      `"soon"`,
				"transaction.revocationReason": `"x"`, "renewal.eligibleWinBackOfferIds": `["a",1]`,
				"renewal.isInBillingRetryPeriod": "1", "renewal.renewalDate": "1e+30",
			},
		},
		{"null", m{"status": nil}, m{"price": nil}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := with(notification(), m{"data": with(with(data(), tt.data), m{
				"signedTransactionInfo": c.sign(t, with(transaction(), tt.transaction)), "signedRenewalInfo": c.sign(t,
					with(renewal(), tt.renewal)),
			})})
			event, err := verify(t, newVerifier(t, c), body(t, c.sign(t, all)))
			if err != nil {
				t.Fatal(err)
			}
			n, err := applehook.Decode(&event.Message)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string(nil)
			for _, u := range n.Unread {
				if got == nil {
					got = map[string]string{}
				}
				if got[u.Path] = string(u.Raw); u.Err == nil {
					t.Errorf("%s has no error", u.Path)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Unread (-want +got):\n%s", diff)
			}
			if n.UUID != uuid || n.Data.BundleID != bundle || n.Transaction.ProductID != "pro.monthly" ||
				n.Transaction.Currency != "EUR" || n.Renewal.AutoRenewStatus != 1 {
				t.Errorf("other fields are lost: %+v, %+v, %+v", n, n.Transaction, n.Renewal)
			}
			if _, changed := tt.want["renewal.eligibleWinBackOfferIds"]; changed &&
				(n.Renewal.EligibleWinBackOfferIDs != nil || n.Transaction.Price != 0 ||
					n.Transaction.RevocationReason != nil) {
				t.Errorf("fields that could not be read are not zero: %+v, %+v", n.Transaction, n.Renewal)
			}
		})
	}
}
