package snshook_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/snshook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

func TestVerify(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{})
	message := consumer.Message{
		ID: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", Tenant: "sns/" + orders, Topic: orders,
		Payload: []byte("line 1\nline \"2\" ü"),
		Headers: map[string]string{"sns-timestamp": "2026-05-04T03:02:01.123Z"}, Time: published,
	}
	for _, test := range []struct {
		name   string
		signed snshook.Message
		edit   map[string]any
		want   func(*webhook.Event)
	}{
		{name: "E24: a notification as text/plain", want: func(*webhook.Event) {}},
		{
			name: "with a subject", signed: snshook.Message{Subject: "Order 1"},
			want: func(e *webhook.Event) { e.Message.Headers["sns-subject"] = "Order 1" },
		},
		{name: "a subject of null is not signed", edit: map[string]any{"Subject": nil}, want: func(*webhook.Event) {}},
		{
			name: "nothing unsigned is passed on",
			edit: map[string]any{
				"UnsubscribeURL":    "https://evil.example",
				"MessageAttributes": map[string]any{"a": map[string]any{"Type": "String", "Value": "b"}},
			},
			want: func(*webhook.Event) {},
		},
		{
			name: "a subscription confirmation is dropped", signed: snshook.Message{Type: "SubscriptionConfirmation"},
			want: func(e *webhook.Event) {
				e.Drop = "subscription confirmation: pass its body to Verifier.Confirm to accept the subscription"
			},
		},
		{
			name: "an unsubscribe confirmation is dropped", signed: snshook.Message{Type: "UnsubscribeConfirmation"},
			want: func(e *webhook.Event) {
				e.Drop = "unsubscribe confirmation: the topic sends no more messages to this endpoint"
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.signed.Message = "line 1\nline \"2\" ü"
			body := changed(t, sign(t, test.signed), test.edit)
			if strings.Contains(test.name, "null") {
				body = append(bytes.TrimSuffix(body, []byte("}")), `,"Subject":null}`...)
			}
			got, err := verify(t, v, body)
			if err != nil {
				t.Fatal(err)
			}
			want := webhook.Event{Message: message}
			want.Message.Headers = map[string]string{"sns-timestamp": "2026-05-04T03:02:01.123Z"}
			test.want(&want)
			if got[0].Message.Fingerprint == nil || got[0].Message.Fingerprint.IsZero() {
				t.Error("no fingerprint")
			}
			want.Message.Fingerprint = got[0].Message.Fingerprint
			if diff := cmp.Diff([]webhook.Event{want}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFingerprint(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{})
	fingerprint := func(m snshook.Message) dedup.Fingerprint {
		t.Helper()
		events, err := verify(t, v, sign(t, m))
		if err != nil {
			t.Fatal(err)
		}
		return *events[0].Message.Fingerprint
	}
	first := fingerprint(snshook.Message{Message: "a", Subject: "b"})
	if again := fingerprint(snshook.Message{Message: "a", Subject: "b", Timestamp: published.Add(time.Second)}); again != first {
		t.Error("E18: the fingerprint depends on more than the content")
	}
	for _, m := range []snshook.Message{
		{Message: "ab"},
		{Message: "a"},
		{Message: "", Subject: "ba"},
		{Message: "b", Subject: "a"},
	} {
		if fingerprint(m) == first {
			t.Errorf("%+v has the fingerprint of another content", m)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	signed := sign(t, snshook.Message{Message: "hello", Subject: "greeting"})
	set := func(name string, value any) []byte { return changed(t, signed, map[string]any{name: value}) }
	var fields map[string]string
	if err := json.Unmarshal(signed, &fields); err != nil {
		t.Fatal(err)
	}
	twice := func(name, value string) []byte {
		return append(bytes.TrimSuffix(bytes.Clone(signed), []byte("}")), `,"`+name+`":"`+value+`"}`...)
	}
	foreign, err := snshook.NewSigner()
	if err != nil {
		t.Fatal(err)
	}
	forged, err := foreign.Sign(snshook.Message{TopicArn: orders, Message: "hello", Timestamp: published})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		body []byte
		want webhook.Refusal
	}{
		{"case 47: the signature is missing", set("Signature", nil), webhook.Unsigned},
		{"case 47: the signature is empty", set("Signature", ""), webhook.Unsigned},
		{"case 47: the signature occurs twice", twice("Signature", fields["Signature"]), webhook.Unsigned},
		{"case 47: a raw message", []byte("hello"), webhook.Unsigned},
		{"case 47: no body", nil, webhook.Unsigned},
		{"case 49: the message is altered", set("Message", "hello\n"), webhook.BadSignature},
		{"case 49: a byte order mark", append([]byte("\ufeff"), signed...), webhook.Unsigned},
		{"case 50: version 1", sign(t, snshook.Message{SignatureVersion: "1"}), webhook.BadSignature},
		{"case 50: version 2 called 1", set("SignatureVersion", "1"), webhook.BadSignature},
		{"case 50: version 3", set("SignatureVersion", "3"), webhook.BadSignature},
		{"case 50: no version", set("SignatureVersion", nil), webhook.Unsigned},
		{"case 50: version 2 as a number", set("SignatureVersion", 2), webhook.Unsigned},
		{"case 51: a truncated signature", set("Signature", fields["Signature"][:100]), webhook.Unsigned},
		{"case 51: a signature of another length", set("Signature", strings.Repeat("AAAA", 100)), webhook.BadSignature},
		{"case 51: a signature of no base64", set("Signature", "!"+fields["Signature"][1:]), webhook.Unsigned},
		{
			"a signature by another key", changed(t, forged, map[string]any{"SigningCertURL": fields["SigningCertURL"]}),
			webhook.BadSignature,
		},
		{"case 54: another id", set("MessageId", "00000000-0000-4000-8000-000000000000"), webhook.BadSignature},
		{"case 60: another topic", sign(t, snshook.Message{TopicArn: other}), webhook.WrongApp},
		{"case 60: the topic is altered", set("TopicArn", other), webhook.WrongApp},
		{"case 71: the id occurs twice", twice("MessageId", "00000000-0000-4000-8000-000000000000"), webhook.Unsigned},
		{
			"case 71: the id occurs twice in other case", twice("messageid", "00000000-0000-4000-8000-000000000000"),
			webhook.Unsigned,
		},
		{"case 71: the message occurs twice", twice("MESSAGE", "bye"), webhook.Unsigned},
		{
			"case 71: deep nesting", twiceRaw(signed, strings.Repeat("[", 10000)+strings.Repeat("]", 10000)),
			webhook.Unsigned,
		},
		{"case 71: invalid UTF-8", bytes.Replace(signed, []byte("hello"), []byte("h\xffllo"), 1), webhook.Unsigned},
		{"case 72: a long id", sign(t, snshook.Message{MessageID: strings.Repeat("a", 256)}), webhook.Unsigned},
		{
			"case 72: an id with NUL", sign(t, snshook.Message{MessageID: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf32\x00"}),
			webhook.Unsigned,
		},
		{"another type", set("Type", "UnsubscribeConfirmation"), webhook.Unsigned},
		{"an unknown type", set("Type", "Other"), webhook.Unsigned},
		{"the subject is removed", set("Subject", nil), webhook.BadSignature},
		{"the subject is altered", set("Subject", "x"), webhook.BadSignature},
		{"the time is altered", set("Timestamp", "2026-05-04T03:02:02.123Z"), webhook.BadSignature},
		{"the time is no time", set("Timestamp", "1e30"), webhook.Unsigned},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, _ := newVerifier(t, snshook.Config{})
			events, err := verify(t, v, test.body)
			if got := webhook.RefusalOf(err); got != test.want || events != nil {
				t.Errorf("Verify = %v, %v; want a refusal %q", events, err, test.want)
			}
		})
	}
	t.Run("case 60: wrong topics cause no request", func(t *testing.T) {
		v, network := newVerifier(t, snshook.Config{})
		for _, arn := range []string{other, orders + ".fifo", orders + "2", "", strings.ToUpper(orders)} {
			if _, err := verify(t, v, set("TopicArn", arn)); webhook.RefusalOf(err) != webhook.WrongApp {
				t.Errorf("%q: %v", arn, err)
			}
		}
		if n := network.requests(); n != 0 {
			t.Errorf("%d requests, want 0", n)
		}
	})
}

func twiceRaw(body []byte, raw string) []byte {
	return append(bytes.TrimSuffix(bytes.Clone(body), []byte("}")), `,"More":`+raw+`}`...)
}

// The signed text has a line for each name and each value. A Message with line breaks must not be readable as several
// fields.
func TestCase55Framing(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{})
	const inner = "Message\na\nMessageId\n00000000-0000-4000-8000-000000000000\nSubject\nb"
	body := sign(t, snshook.Message{Message: strings.TrimPrefix(inner, "Message\n")})
	if _, err := verify(t, v, body); err != nil {
		t.Fatalf("the message as it was signed: %v", err)
	}
	// The same signed text, divided differently: the rest of it becomes the Subject.
	moved := changed(t, body, map[string]any{
		"Message": "a", "MessageId": "00000000-0000-4000-8000-000000000000",
		"Subject": "b\nMessageId\n22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
	})
	if events, err := verify(t, v, moved); webhook.RefusalOf(err) != webhook.Unsigned {
		t.Errorf("case 55: moved bytes were accepted: %v, %v", events, err)
	}
}

func TestCase48Time(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{})
	body := sign(t, snshook.Message{})
	for _, test := range []struct {
		name     string
		received time.Time
		fails    bool // not as a refusal, because SNS would not repeat the delivery
	}{
		{"case 48: exactly at the limit", published.Add(-dedup.MaxAhead), false},
		{"case 48: this machine's clock is slow", published.Add(-dedup.MaxAhead - time.Nanosecond), true},
		{"old, which the store judges by Message.Time", published.Add(365 * 24 * time.Hour), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, err := v.Verify(t.Context(), &webhook.Delivery{Body: body, Time: test.received})
			if webhook.RefusalOf(err) != "" || (err != nil) != test.fails {
				t.Fatalf("%v, want an error that is no refusal: %v", err, test.fails)
			}
			if err == nil && !events[0].Message.Time.Equal(published) {
				t.Errorf("E26: Message.Time is %v, want the signed time %v", events[0].Message.Time, published)
			}
		})
	}
}

// A message of 256 KiB, which is SNS's limit, has many control characters: in the JSON of the delivery each takes six
// bytes.
func TestLargestMessage(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{})
	text := strings.Repeat("\x01", 256<<10)
	body := sign(t, snshook.Message{Message: text})
	if most := v.Source().MaxBody; int64(len(body)) > most {
		t.Errorf("SNS's largest message is a delivery of %d bytes, and MaxBody is %d", len(body), most)
	}
	if events, err := verify(t, v, body); err != nil || string(events[0].Message.Payload) != text {
		t.Errorf("the largest message: %v", err)
	}
}

func TestSHA1(t *testing.T) {
	v, _ := newVerifier(t, snshook.Config{AcceptedRisks: []snshook.Risk{snshook.RiskSHA1}})
	for _, version := range []string{"1", "2"} {
		body := sign(t, snshook.Message{SignatureVersion: version})
		if _, err := verify(t, v, body); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
		swapped := changed(t, body, map[string]any{"SignatureVersion": map[string]string{"1": "2", "2": "1"}[version]})
		if _, err := verify(t, v, swapped); webhook.RefusalOf(err) != webhook.BadSignature {
			t.Errorf("version %s under the name of the other: %v", version, err)
		}
	}
}
