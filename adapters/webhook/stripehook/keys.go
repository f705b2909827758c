package stripehook

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

const (
	sourceName = "stripe"
	// maxScope leaves room for "stripe/live/" and two scopes within dedup.MaxTenant.
	maxScope = 120
)

// ContextHeader is the name in consumer.Message.Headers of the event's account: acct_1, or a path of accounts. It is
// missing if the event names no account and none is configured. Client.Get takes it.
const ContextHeader = "stripe-context"

// keys makes messages of events. Webhooks and the backfill share it: an event gets the same message from both, but for
// the bytes of its payload.
type keys struct {
	account     string // of events that name none
	objectAlias bool
}

// message returns the message of an event that was received at that time. It uses only fields that are the same in each
// delivery and in a backfill. In particular it uses neither the endpoint, nor pending_webhooks, nor the copy of the
// object, which depends on an endpoint's API version. Only the time of a test clock's event is another one in each
// delivery.
func (k keys) message(e Event, payload []byte, received time.Time) consumer.Message {
	fingerprint := fingerprint(e)
	msg := consumer.Message{
		ID: e.LogicalID(), Tenant: k.tenant(e), Topic: e.Type, Time: timeOf(e, received), Fingerprint: &fingerprint,
		Position: sourceName + "/" + e.ID, Payload: payload,
	}
	if scope := k.scope(e); scope != "" {
		msg.Headers = map[string]string{ContextHeader: scope}
	}
	if k.objectAlias && e.Object != "" {
		msg.Aliases = []string{objectAlias(e)}
	}
	return msg
}

// timeOf returns when the event was created. Test mode has test clocks, which a user sets to any time: an event that is
// ahead of its delivery, or older than any that Stripe still delivers, gets the time of the delivery. A consumer would
// park it otherwise.
func timeOf(e Event, received time.Time) time.Time {
	if age := received.Sub(e.Created); !e.Livemode && (age < 0 || age > horizon) {
		return received
	}
	return e.Created
}

// scope names the event's account. An event that names its account twice, as Connect events of newer API
// versions do, has the same scope as one that names it once.
func (k keys) scope(e Event) string {
	last := e.Context[strings.LastIndexByte(e.Context, '/')+1:]
	switch {
	case e.Account == "" && e.Context == "":
		return k.account
	case e.Context == "":
		return e.Account
	case e.Account == "" || e.Account == last:
		return e.Context
	default:
		return e.Context + ":" + e.Account // neither contains a colon
	}
}

func (k keys) tenant(e Event) string {
	tenant := sourceName + "/" + modeOf(e.Livemode).String()
	if scope := k.scope(e); scope != "" {
		tenant += "/" + scope
	}
	return tenant
}

// fingerprint hashes what two renderings of one event have in common. A thin event that names its snapshot event
// matches all content, because the two differ in type and in the precision of their times.
func fingerprint(e Event) dedup.Fingerprint {
	if e.Snapshot != "" {
		return dedup.Fingerprint{}
	}
	content := binary.AppendVarint(binary.AppendVarint(nil, e.Created.Unix()), int64(e.Created.Nanosecond()))
	for _, s := range []string{e.Type, e.Object} {
		content = append(binary.AppendUvarint(content, uint64(len(s))), s...)
	}
	return dedup.FingerprintOf(content)
}

// objectAlias is hashed, because users choose the IDs of some objects. The space keeps it apart from the IDs of events.
// Thin events of v1 objects have the type of the snapshot event behind "v1.".
func objectAlias(e Event) string {
	return strict.Alias("object ", strings.TrimPrefix(e.Type, "v1."), e.Object)
}
