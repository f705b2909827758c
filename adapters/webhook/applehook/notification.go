package applehook

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Decode returns the notification in a message of a Verifier or a Backfill. Its signatures are verified already: a message from the
// database or from a dead letter can be decoded at any time. The error is consumer.Permanent, so that a handler that returns it parks
// the message at once.
func Decode(msg *consumer.Message) (*Notification, error) {
	var p payload
	if err := json.Unmarshal(msg.Payload, &p); err != nil {
		return nil, consumer.Permanent(fmt.Errorf("applehook: decode the payload: %w", err))
	}
	if p.Version != payloadVersion {
		return nil, consumer.Permanent(fmt.Errorf("applehook: the payload has version %d, not %d: it was not made by an applehook.Verifier of this version", p.Version, payloadVersion))
	}
	n := &Notification{Raw: p.Notification}
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		into any
	}{
		{"notification", p.Notification, n},
		{"transaction", p.Transaction, &n.Transaction},
		{"renewal", p.Renewal, &n.Renewal},
		{"appTransaction", p.AppTransaction, &n.AppTransaction},
	} {
		if part.raw == nil {
			continue
		}
		if err := json.Unmarshal(part.raw, part.into); err != nil {
			return nil, consumer.Permanent(fmt.Errorf("applehook: decode the %s: %w", part.name, err))
		}
	}
	if n.Transaction != nil {
		n.Transaction.Raw = p.Transaction
	}
	if n.Renewal != nil {
		n.Renewal.Raw = p.Renewal
	}
	if n.AppTransaction != nil {
		n.AppTransaction.Raw = p.AppTransaction
	}
	return n, nil
}

// Millis is a time as Apple writes it: milliseconds since 1970. 0 means that Apple did not send it.
type Millis int64

// Time returns m as a time.Time, and the zero Time for 0.
func (m Millis) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(m)).UTC()
}

// Notification is what Apple calls responseBodyV2DecodedPayload. Apple adds types, subtypes and fields from time to time: ignore the
// types that you do not know, and find new fields in Raw.
type Notification struct {
	Type       string `json:"notificationType"` // such as DID_RENEW
	Subtype    string `json:"subtype"`          // such as BILLING_RECOVERY; often empty
	UUID       string `json:"notificationUUID"` // the same in each attempt to send it
	Version    string `json:"version"`
	SignedDate Millis `json:"signedDate"`

	// One of these is set. It names the app.
	Data                  *Data                  `json:"data"`
	Summary               *Summary               `json:"summary"`
	ExternalPurchaseToken *ExternalPurchaseToken `json:"externalPurchaseToken"`
	AppData               *AppData               `json:"appData"`

	// These are verified by their own signatures. They are nil if the notification does not have them.
	Transaction    *Transaction    `json:"-"`
	Renewal        *Renewal        `json:"-"`
	AppTransaction *AppTransaction `json:"-"`

	Raw json.RawMessage `json:"-"` // the JSON, as Apple signed it
}

// Data is the app of a notification, and the state of a subscription. Its signed parts are in Notification.Transaction and
// Notification.Renewal.
type Data struct {
	AppAppleID               int64       `json:"appAppleId"`
	BundleID                 string      `json:"bundleId"`
	BundleVersion            string      `json:"bundleVersion"`
	Environment              Environment `json:"environment"`
	Status                   int         `json:"status"` // 1 active, 2 expired, 3 billing retry, 4 grace period, 5 revoked
	ConsumptionRequestReason string      `json:"consumptionRequestReason"`
}

// Summary is the result of a request to extend the subscriptions of many customers.
type Summary struct {
	AppAppleID             int64       `json:"appAppleId"`
	BundleID               string      `json:"bundleId"`
	Environment            Environment `json:"environment"`
	ProductID              string      `json:"productId"`
	RequestIdentifier      string      `json:"requestIdentifier"`
	StorefrontCountryCodes []string    `json:"storefrontCountryCodes"`
	SucceededCount         int64       `json:"succeededCount"`
	FailedCount            int64       `json:"failedCount"`
}

// ExternalPurchaseToken is about purchases outside of the App Store.
type ExternalPurchaseToken struct {
	AppAppleID          int64  `json:"appAppleId"`
	BundleID            string `json:"bundleId"`
	ExternalPurchaseID  string `json:"externalPurchaseId"` // begins with SANDBOX in the sandbox
	TokenCreationDate   Millis `json:"tokenCreationDate"`
	TokenType           string `json:"tokenType"`
	TokenExpirationDate Millis `json:"tokenExpirationDate"`
}

// AppData is the app of a notification about an app's download. Its signed part is in Notification.AppTransaction.
type AppData struct {
	AppAppleID  int64       `json:"appAppleId"`
	BundleID    string      `json:"bundleId"`
	Environment Environment `json:"environment"`
}
