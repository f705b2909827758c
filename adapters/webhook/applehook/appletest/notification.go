package appletest

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// Notification describes a notification to sign.
type Notification struct {
	// Type is such as DID_RENEW. Required.
	Type string

	// Subtype is such as BILLING_RECOVERY.
	//
	// Defaults to none.
	Subtype string

	// UUID identifies the notification. Sign the same UUID again to imitate a retry.
	//
	// Defaults to a random UUID.
	UUID string

	// SignedDate is when it was signed.
	//
	// Defaults to time.Now.
	SignedDate time.Time

	// BundleID is the app's. Required.
	BundleID string

	// AppAppleID is the app's number.
	//
	// Defaults to none, as in the sandbox.
	AppAppleID int64

	// Environment is where it comes from.
	//
	// Defaults to applehook.Production.
	Environment applehook.Environment

	// Transaction and Renewal have members of the signed parts, such as "originalTransactionId". The bundle, the
	// environment and the signed date are filled in.
	//
	// Defaults to notifications without these parts.
	Transaction, Renewal map[string]any

	// Members are added to the notification and may replace its members, such as "data".
	//
	// Defaults to none.
	Members map[string]any
}

// SignedPayload returns the JWS of n.
func (a *Authority) SignedPayload(n Notification) (string, error) {
	if n.Type == "" || n.BundleID == "" {
		return "", fmt.Errorf("appletest: Notification.Type is %q and BundleID is %q: both are required", n.Type,
			n.BundleID)
	}
	if n.UUID == "" {
		n.UUID = newUUID()
	}
	if n.SignedDate.IsZero() {
		n.SignedDate = time.Now()
	}
	if n.Environment == "" {
		n.Environment = applehook.Production
	}
	signed := n.SignedDate.UnixMilli()
	data := map[string]any{"bundleId": n.BundleID, "bundleVersion": "1", "environment": n.Environment}
	if n.AppAppleID != 0 {
		data["appAppleId"] = n.AppAppleID
	}
	for _, part := range []struct {
		name    string
		members map[string]any
		fill    map[string]any
	}{
		{"signedTransactionInfo", n.Transaction, map[string]any{"bundleId": n.BundleID, "environment": n.Environment, "signedDate": signed}},
		{"signedRenewalInfo", n.Renewal, map[string]any{"environment": n.Environment, "signedDate": signed}},
	} {
		if part.members == nil {
			continue
		}
		maps.Copy(part.fill, part.members)
		inner, err := a.Sign(part.fill)
		if err != nil {
			return "", err
		}
		data[part.name] = inner
	}
	members := map[string]any{
		"notificationType": n.Type, "notificationUUID": n.UUID, "version": "2.0",
		"signedDate": signed, "data": data,
	}
	if n.Subtype != "" {
		members["subtype"] = n.Subtype
	}
	maps.Copy(members, n.Members)
	return a.Sign(members)
}

// Body returns the body of Apple's request with n.
func (a *Authority) Body(n Notification) ([]byte, error) {
	signed, err := a.SignedPayload(n)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]string{"signedPayload": signed})
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
