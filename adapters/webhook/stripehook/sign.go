package stripehook

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Sign returns the value of the header Stripe-Signature of a delivery of body, signed at the given time with each of
// secrets, as Stripe signs while a secret is rolled. It is for tests of a receiver.
func Sign(body []byte, at time.Time, secrets ...string) (header string) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	var b strings.Builder
	b.WriteString("t=" + timestamp)
	for _, secret := range secrets {
		b.WriteString(",v1=" + hex.EncodeToString(sign(secret, timestamp, body)))
	}
	return b.String()
}

// Body returns the payload of e: that of a thin event if e.Thin is set, and otherwise that of a snapshot event with a
// copy of object, which becomes JSON. Created defaults to now, and an object of nil to one with e.Object as its ID. It
// is for tests of a receiver. It panics if object cannot become JSON.
func (e Event) Body(object any) []byte {
	if e.Created.IsZero() {
		e.Created = time.Now()
	}
	payload := map[string]any{"id": e.ID, "type": e.Type, "livemode": e.Livemode}
	if e.Context != "" {
		payload["context"] = e.Context
	}
	if e.Account != "" {
		payload["account"] = e.Account
	}
	if e.Thin {
		payload["object"] = objectThin
		payload["created"] = e.Created.UTC().Format(time.RFC3339Nano)
		if e.Object != "" {
			payload["related_object"] = map[string]any{"id": e.Object, "url": e.ObjectURL}
		}
		if e.Snapshot != "" {
			payload["snapshot_event"] = e.Snapshot
		}
	} else {
		if object == nil {
			object = map[string]any{"id": e.Object}
		}
		payload["object"] = objectSnapshot
		payload["created"] = e.Created.Unix()
		payload["api_version"] = e.APIVersion
		payload["pending_webhooks"] = 1
		payload["data"] = map[string]any{"object": object}
	}
	body, err := json.Marshal(payload)
	if err != nil {
		panic("stripehook: Event.Body: " + err.Error())
	}
	return body
}
