package applehook

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/txonce/txonce/consumer"
)

// Decode returns the notification in a message of a Verifier or a Backfill. Its signatures are verified already: a
// message from the database or from a dead letter can be decoded at any time. The error is consumer.Permanent, so that
// a handler that returns it parks the message at once.
//
// A field whose form Apple has changed is no error: it is zero, and Notification.Unread has its value. A handler that
// needs such a field, above all an amount, must look there, or return an error if there is anything.
func Decode(msg *consumer.Message) (*Notification, error) {
	var p payload
	if err := json.Unmarshal(msg.Payload, &p); err != nil {
		return nil, consumer.Permanent(fmt.Errorf("applehook: decode the payload: %w", err))
	}
	if p.Version != payloadVersion {
		return nil, consumer.Permanent(fmt.Errorf("applehook: the payload has version %d, not %d: it was not made by an applehook.Verifier of this version", p.Version, payloadVersion))
	}
	n := &Notification{Raw: p.Notification}
	parts := []part{{"notification", p.Notification, n}}
	if p.Transaction != nil {
		n.Transaction = &Transaction{Raw: p.Transaction}
		parts = append(parts, part{"transaction", p.Transaction, n.Transaction})
	}
	if p.Renewal != nil {
		n.Renewal = &Renewal{Raw: p.Renewal}
		parts = append(parts, part{"renewal", p.Renewal, n.Renewal})
	}
	if p.AppTransaction != nil {
		n.AppTransaction = &AppTransaction{Raw: p.AppTransaction}
		parts = append(parts, part{"appTransaction", p.AppTransaction, n.AppTransaction})
	}
	for _, part := range parts {
		unread := decodeFields(part.raw, reflect.ValueOf(part.into).Elem(), part.name)
		if len(unread) == 1 && unread[0].Path == part.name { // it is no object
			return nil, consumer.Permanent(fmt.Errorf("applehook: decode the %s: %w", part.name, unread[0].Err))
		}
		n.Unread = append(n.Unread, unread...)
	}
	return n, nil
}

// part is one signed JSON of a payload, and the struct for it.
type part struct {
	name string
	raw  json.RawMessage
	into any
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

// Notification is what Apple calls responseBodyV2DecodedPayload. Apple adds types, subtypes and fields from time to
// time: ignore the types that you do not know, and find new fields in Raw.
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

	// Unread are the fields that could not be read, also those of the parts above. Their paths begin with
	// "transaction.", "renewal." or "appTransaction.", or are those of the notification itself, such as "data.status".
	Unread []Unread `json:"-"`
}

// Data is the app of a notification, and the state of a subscription. Its signed parts are in Notification.Transaction
// and Notification.Renewal.
type Data struct {
	AppAppleID    int64       `json:"appAppleId"`
	BundleID      string      `json:"bundleId"`
	BundleVersion string      `json:"bundleVersion"`
	Environment   Environment `json:"environment"`
	// 1 active, 2 expired, 3 billing retry, 4 grace period, 5 revoked
	Status                   int    `json:"status"`
	ConsumptionRequestReason string `json:"consumptionRequestReason"`
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
