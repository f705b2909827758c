package stripehook_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

func message(t testing.TB, cfg stripehook.Config, e stripehook.Event) consumer.Message {
	t.Helper()
	return accepted(t, newVerifier(t, cfg), signed(e.Body(nil), liveSecret)).Message
}

func TestMessage(t *testing.T) {
	e := paid()
	e.Account = "acct_1"
	got := message(t, stripehook.Config{}, e)
	if got.Fingerprint == nil || got.Fingerprint.IsZero() {
		t.Error("there is no fingerprint")
	}
	got.Fingerprint = nil
	want := consumer.Message{
		ID: "evt_1", Topic: "invoice.paid", Tenant: "stripe/live/acct_1", Position: "stripe/evt_1",
		Payload: e.Body(nil),
		Time:    e.Created, // E26: signed, and the same with each attempt
		Headers: map[string]string{"stripe-context": "acct_1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A delivery's own time is not the event's: two attempts have the same Message.Time.
func TestTimeIsThatOfTheEvent(t *testing.T) {
	v, body := newVerifier(t, stripehook.Config{}), paid().Body(nil)
	later := signed(body, liveSecret)
	later.Time = now.Add(4 * time.Minute)
	later.Header.Set("Stripe-Signature", stripehook.Sign(body, later.Time, liveSecret))
	if diff := cmp.Diff(accepted(t, v, signed(body, liveSecret)), accepted(t, v, later)); diff != "" {
		t.Errorf("E26: two attempts differ (-first +second):\n%s", diff)
	}
}

func TestTenant(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		account, context, own string
		want                  string
	}{
		{"the account of the endpoint", "", "", "", "stripe/live"},
		{"the account of the endpoint, with its name", "", "", "acct_1", "stripe/live/acct_1"},
		{"the same account from an organization", "", "acct_1", "acct_1", "stripe/live/acct_1"},
		{"a connected account, older API version", "acct_2", "", "acct_1", "stripe/live/acct_2"},
		{"a connected account, newer API version", "acct_2", "acct_2", "acct_1", "stripe/live/acct_2"},
		{"a connected account, thin", "", "acct_2", "acct_1", "stripe/live/acct_2"},
		{"a connected account from an organization", "acct_2", "acct_1/acct_2", "", "stripe/live/acct_1/acct_2"},
		{"the same, thin", "", "acct_1/acct_2", "", "stripe/live/acct_1/acct_2"},
		{"both, and they differ", "acct_3", "acct_1/acct_2", "", "stripe/live/acct_1/acct_2:acct_3"},
		{"both, and one ends like the other", "2", "acct_2", "", "stripe/live/acct_2:2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := paid()
			e.Account, e.Context = tt.account, tt.context
			got := message(t, stripehook.Config{Account: tt.own}, e)
			if got.Tenant != tt.want {
				t.Errorf("tenant %q, want %q", got.Tenant, tt.want)
			}
			if key := (dedup.Key{Consumer: "billing", Tenant: got.Tenant, ID: got.ID}); key.Validate() != nil {
				t.Error(key.Validate())
			}
		})
	}
}

// One event is delivered to two endpoints with different API versions, and again later.
func TestFingerprintIsStable(t *testing.T) {
	first := []byte(`{"id":"evt_1","object":"event","api_version":"2019-02-19","created":1795176000,"livemode":true,"type":"invoice.paid","pending_webhooks":2,"data":{"object":{"id":"in_1","paid":true}}}`)
	again := bytes.Replace(first, []byte(`"pending_webhooks":2`), []byte(`"pending_webhooks":1`), 1)
	version := []byte(`{"data":{"object":{"status":"paid","id":"\u0069n_1"}},"id":"evt_1","object":"event","api_version":"2026-10-01","created":1795176000,"livemode":true,"type":"invoice.paid","pending_webhooks":0}`)
	var indented bytes.Buffer
	if err := json.Indent(&indented, first, "", "    "); err != nil {
		t.Fatal(err)
	}
	v := newVerifier(t, stripehook.Config{})
	want := accepted(t, v, signed(first, liveSecret)).Message.Fingerprint
	for name, body := range map[string][]byte{
		"E18: pending_webhooks": again, "E18: indentation": indented.Bytes(),
		"E18: API version": version,
	} {
		t.Run(name, func(t *testing.T) {
			if got := accepted(t, v, signed(body, liveSecret)).Message.Fingerprint; *got != *want {
				t.Errorf("fingerprint %v, want %v", *got, *want)
			}
		})
	}
	for name, body := range map[string][]byte{
		"another type":   bytes.Replace(first, []byte("invoice.paid"), []byte("invoice.void"), 1),
		"another object": bytes.Replace(first, []byte("in_1"), []byte("in_2"), 1),
		"another time":   bytes.Replace(first, []byte("1795176000"), []byte("1795176001"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got := accepted(t, v, signed(body, liveSecret)).Message.Fingerprint; *got == *want {
				t.Error("other content has the same fingerprint")
			}
		})
	}
}

func thinPaid() stripehook.Event {
	return stripehook.Event{
		ID: "evt_9", Thin: true, Type: "v1.invoice.paid", Created: paid().Created.Add(123 * time.Millisecond),
		Livemode: true,
		Object:   "in_1", ObjectURL: "/v1/invoices/in_1", Snapshot: "evt_1",
	}
}

func TestThinAndSnapshotEventsAreOne(t *testing.T) {
	snapshot, thin := message(t, stripehook.Config{}, paid()), message(t, stripehook.Config{}, thinPaid())
	t.Run("case 69: a thin event that names its snapshot event has its key", func(t *testing.T) {
		if snapshot.ID != thin.ID || snapshot.Tenant != thin.Tenant ||
			!snapshot.Fingerprint.Matches(*thin.Fingerprint) {
			t.Errorf("%q of %q and %q of %q, fingerprints %v and %v", snapshot.ID, snapshot.Tenant, thin.ID,
				thin.Tenant, snapshot.Fingerprint, thin.Fingerprint)
		}
		if thin.Position == snapshot.Position || thin.Topic != "v1.invoice.paid" {
			t.Errorf("position %q, topic %q", thin.Position, thin.Topic)
		}
	})
	t.Run("case 69: a thin event that names none has a key of its own", func(t *testing.T) {
		e := thinPaid()
		e.Snapshot = ""
		if alone := message(t, stripehook.Config{}, e); alone.ID != "evt_9" || alone.Fingerprint.IsZero() {
			t.Errorf("ID %q, fingerprint %v", alone.ID, alone.Fingerprint)
		}
	})
}

func TestObjectAlias(t *testing.T) {
	with := stripehook.Config{ObjectAlias: true}
	aliases := func(cfg stripehook.Config, change func(e *stripehook.Event)) []string {
		e := paid()
		change(&e)
		return message(t, cfg, e).Aliases
	}
	same := func(*stripehook.Event) {}
	want := aliases(with, same)
	if len(want) != 1 || (dedup.Key{Consumer: "c", ID: want[0]}).Validate() != nil {
		t.Fatalf("aliases %q, want one", want)
	}
	if got := aliases(stripehook.Config{}, same); got != nil {
		t.Errorf("R7: the alias is opt-in, and there is %q", got)
	}
	if got := aliases(with, func(e *stripehook.Event) { e.ID = "evt_2" }); !cmp.Equal(got, want) {
		t.Errorf("a second event of the same change has %q, want %q", got, want)
	}
	for name, change := range map[string]func(e *stripehook.Event){
		"another object": func(e *stripehook.Event) { e.Object = "in_2" },
		"another type":   func(e *stripehook.Event) { e.Type = "invoice.void" },
		"a moved letter": func(e *stripehook.Event) { e.Type, e.Object = "invoice.pai", "din_1" },
		"no object's ID": func(e *stripehook.Event) { e.Object = "" },
	} {
		if got := aliases(with, change); cmp.Equal(got, want) {
			t.Errorf("%s has the same alias %q", name, got)
		}
	}
	thin := thinPaid()
	thin.Snapshot = ""
	if got := message(t, with, thin).Aliases; !cmp.Equal(got, want) {
		t.Errorf("the thin event of the same change has %q, want %q", got, want)
	}
}
