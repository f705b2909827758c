package applehook

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// payload is what Message.Payload holds: what Apple signed, without the signature of the whole. Stored messages depend
// on it.
type payload struct {
	Version        int             `json:"applehook"`
	Notification   json.RawMessage `json:"notification"`
	Transaction    json.RawMessage `json:"transaction"`
	Renewal        json.RawMessage `json:"renewal"`
	AppTransaction json.RawMessage `json:"appTransaction"`
}

const payloadVersion = 1

// event makes the event of a notification.
func (v *Verifier) event(all verified) (event webhook.Event, err error) {
	n := all.notification.members
	read := func(o object, name string) (s string) {
		if o != nil && err == nil {
			s, err = o.text(name)
		}
		return s
	}
	inner := func(name string) (o object) {
		if err == nil {
			o, err = n.object(name)
		}
		return o
	}
	uuid, kind, subtype := read(n, "notificationUUID"), read(n, "notificationType"), read(n, "subtype")
	transaction, renewal, app := membersOf(all.transaction), membersOf(all.renewal), membersOf(all.appTransaction)
	original := read(transaction, "originalTransactionId")
	if original == "" {
		original = read(renewal, "originalTransactionId")
	}
	// These say what the notification is about. Fields that may change when Apple signs it again are left out: dates,
	// status, certificates.
	stable := []string{
		uuid, kind, subtype, original, read(transaction, "transactionId"), read(transaction, "productId"),
		read(inner("summary"), "requestIdentifier"), read(inner("summary"), "productId"),
		read(inner("externalPurchaseToken"), "externalPurchaseId"), read(app, "appTransactionId"),
	}
	switch {
	case err != nil:
		return event, webhook.Refuse(webhook.Malformed, "applehook: %w", err)
	case !printable(uuid):
		return event, webhook.Refuse(webhook.Malformed,
			"applehook: notificationUUID has %d bytes; want 1 to 255 of printable ASCII", len(uuid))
	case !printable(kind) || subtype != "" && !printable(subtype):
		return event, webhook.Refuse(webhook.Malformed,
			"applehook: notificationType %.100q or subtype %.100q: want 1 to 255 bytes of printable ASCII", kind,
			subtype)
	}
	fingerprint := fingerprintOf(stable)
	event.Message = consumer.Message{
		ID: uuid, Tenant: tenant(all.identity.environment, all.identity.bundleID), Topic: kind, OrderingKey: original,
		Payload: all.payload(), Time: all.notification.at, Fingerprint: &fingerprint,
		Headers: map[string]string{"apple-environment": string(all.identity.environment)},
	}
	if subtype != "" {
		event.Message.Headers["apple-subtype"] = subtype
	}
	switch {
	case v.dropsAsSandbox(all.identity):
		event.Drop = "sandbox notification at the production endpoint"
	case kind == "TEST" && !v.cfg.HandleTest:
		event.Drop = "test notification"
	}
	return event, nil
}

func membersOf(o *opened) object {
	if o == nil {
		return nil
	}
	return o.members
}

// payload returns the JSON of a payload. json.Marshal would change the bytes that Apple signed: it escapes some letters
// and removes white space.
func (all *verified) payload() []byte {
	b := fmt.Appendf(nil, `{"applehook":%d,"notification":%s`, payloadVersion, all.notification.raw)
	for _, part := range []struct {
		name string
		o    *opened
	}{{"transaction", all.transaction}, {"renewal", all.renewal}, {"appTransaction", all.appTransaction}} {
		if part.o != nil {
			b = fmt.Appendf(b, `,%q:%s`, part.name, part.o.raw)
		}
	}
	return append(b, '}')
}

// fingerprintOf hashes fields with their lengths, so that ("ab", "c") and ("a", "bc") differ. Stored fingerprints
// depend on it.
func fingerprintOf(fields []string) dedup.Fingerprint {
	content := []byte("applehook 1")
	for _, field := range fields {
		content = binary.AppendUvarint(content, uint64(len(field)))
		content = append(content, field...)
	}
	return dedup.FingerprintOf(content)
}
