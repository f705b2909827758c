package hmachook_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
)

// sendGrid signs its timestamp and the body with ECDSA. A delivery is a batch, and an event may come in several of
// them.
func sendGrid(key string) hmachook.Config {
	return hmachook.Config{
		Name: "sendgrid", PublicKeys: []string{key},
		SignatureHeader: "X-Twilio-Email-Event-Webhook-Signature", SignatureEncoding: hmachook.Base64,
		TimestampHeader: "X-Twilio-Email-Event-Webhook-Timestamp", Signed: "{timestamp}{body}",
		ItemsPath: ".", IDPaths: []string{"sg_event_id"}, TopicPath: "event",
		CreatedPath: "timestamp", CreatedFormat: hmachook.UnixSeconds, GiveUpAfter: 23 * time.Hour,
	}
}

// discord signs its timestamp and the body with Ed25519. This is for interactions, which are answered with a deferred
// message. Discord tests an endpoint with a PING, and with a wrong signature, which it expects to be answered with 401:
// set webhook.Config.RefusalStatus.
func discord(key string) hmachook.Config {
	return hmachook.Config{
		Name: "discord", PublicKeys: []string{key},
		SignatureHeader: "X-Signature-Ed25519", SignatureEncoding: hmachook.Hex,
		TimestampHeader: "X-Signature-Timestamp", Signed: "{timestamp}{body}",
		IDPaths: []string{"id"}, ScopePath: "application_id", Topic: "interaction", Deadline: 3 * time.Second,
		Reply: webhook.Reply{ContentType: "application/json", Body: []byte(`{"type":5}`)},
		Handshake: hmachook.Handshake{
			Path: "type", Value: "1", Reply: webhook.Reply{ContentType: "application/json", Body: []byte(`{"type":1}`)},
		},
	}
}

// These keys and signatures were made with OpenSSL for this test.
const (
	ecdsaKey       = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEO/ea0tQQZhahWn27/f6fI6zv980PAZFZ6DpBotKk1Nyf8OJ5I3ug1zBSgLYu/qnmAwRYZRf2PqmL/3nzIpeglQ=="
	ecdsaSignature = "MEUCICrhAn27rpJQWNaS/Xp4KIxaLYIFpOl5xDg1rim0RcJdAiEAgqw7emMLDqXNyzGrbTwwbDUgftMw1XkU8Gre7+FFNFU="
	sendGridBody   = `[{"email":"a@example.com","event":"delivered","sg_event_id":"ZGVsaXZlcmVkLTA","sg_message_id":"m1","timestamp":1779999990},` +
		`{"email":"a@example.com","event":"open","sg_event_id":"b3Blbi0w","sg_message_id":"m1","timestamp":1779999995}]` + "\r\n"

	edKey       = "f03c49e7b87798763f1cd4f4f71d5539a48473a305f37dd4dfc9eb35aa8e70bf"
	edKeyPEM    = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA8DxJ57h3mHY/HNT09x1VOaSEc6MF833U38nrNaqOcL8=\n-----END PUBLIC KEY-----\n"
	edSignature = "697e3a68336e35b86fa0b578f20e2272fe6c28f725c5076b27b8cf41771d601539bc1d035860f2086760fcf56db8eeb1cdbb1404c9a6a0366c8c6a1a7e613005"
	edPing      = "aed35fdd6778707373dad5e542dd80b74ed05609656e886667c4783547ff67dd0d52f51672338a6406a5d362077908c24157f86b3cf5c42a9832ce7fad67150e"
	discordBody = `{"application_id":"11","data":{"name":"pay"},"id":"846462639134605312","token":"t","type":2,"version":1}`
	discordPing = `{"application_id":"11","id":"1","type":1}`
)

func TestSendersOfPublicKeys(t *testing.T) {
	sg, dc := newVerifier(t, sendGrid(ecdsaKey)), newVerifier(t, discord(edKey))
	for _, test := range []struct {
		name            string
		v               *hmachook.Verifier
		body, signature string
		header, at      string
		ids             string
	}{
		{
			"SendGrid", sg, sendGridBody, ecdsaSignature, "X-Twilio-Email-Event-Webhook-Signature",
			"X-Twilio-Email-Event-Webhook-Timestamp",
			"sendgrid delivered ZGVsaXZlcmVkLTA 1779999990;sendgrid open b3Blbi0w 1779999995;",
		},
		{
			"Discord", dc, discordBody, edSignature, "X-Signature-Ed25519", "X-Signature-Timestamp",
			`discord/11 interaction "846462639134605312" -62135596800;`,
		},
		{
			"Discord's key in PEM", newVerifier(t, discord(edKeyPEM)), discordBody, edSignature, "X-Signature-Ed25519",
			"X-Signature-Timestamp",
			`discord/11 interaction "846462639134605312" -62135596800;`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			deliver := func() *webhook.Delivery {
				return delivery(test.body, map[string]string{test.header: test.signature, test.at: "1780000000"})
			}
			events, err := test.v.Verify(t.Context(), deliver())
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, e := range events {
				got += fmt.Sprintf("%s %s %s %d;", e.Message.Tenant, e.Message.Topic, e.Message.ID,
					e.Message.Time.Unix())
			}
			if got != test.ids {
				t.Errorf("got %s, want %s", got, test.ids)
			}
			for _, change := range []struct {
				name string
				edit func(*webhook.Delivery)
				want webhook.Refusal
			}{
				{
					"case 47: two signatures", func(d *webhook.Delivery) { d.Header.Add(test.header, test.signature) },
					webhook.Unsigned,
				},
				{
					"case 47: two timestamps", func(d *webhook.Delivery) { d.Header.Add(test.at, "1780000000") },
					webhook.Unsigned,
				},
				{"case 47: no timestamp", func(d *webhook.Delivery) { d.Header.Del(test.at) }, webhook.Unsigned},
				{
					"another timestamp", func(d *webhook.Delivery) { d.Header.Set(test.at, "1780000001") },
					webhook.BadSignature,
				},
				{"case 48: an hour later", func(d *webhook.Delivery) { d.Time = now.Add(time.Hour) }, webhook.BadTime},
				{
					"another body", func(d *webhook.Delivery) { d.Body = []byte(strings.Replace(test.body, "1", "2", 1)) },
					webhook.BadSignature,
				},
				{"case 51: a signature of zeros", func(d *webhook.Delivery) {
					d.Header.Set(test.header, strings.NewReplacer("MEUC", "AAAA", "6", "0").Replace(test.signature))
				}, webhook.BadSignature},
				{"case 51: a short signature", func(d *webhook.Delivery) { d.Header.Set(test.header, test.signature[:8]) }, webhook.Unsigned},
				{"case 50: an HMAC with the public key", func(d *webhook.Delivery) {
					d.Header.Set(test.header, hexMAC("1780000000"+test.body))
				}, webhook.Unsigned},
			} {
				t.Run(change.name, func(t *testing.T) {
					d := deliver()
					change.edit(d)
					if _, err := test.v.Verify(t.Context(), d); err == nil {
						t.Fatal("accepted")
					}
					if change.want != webhook.Unsigned || strings.HasPrefix(change.name, "case 47") {
						refused(t, test.v, d, change.want)
					}
				})
			}
		})
	}
	events, err := dc.Verify(t.Context(), delivery(discordPing,
		map[string]string{"X-Signature-Ed25519": edPing, "X-Signature-Timestamp": "1780000000"}))
	if err != nil || events[0].Drop == "" || string(events[0].Reply.Body) != `{"type":1}` {
		t.Errorf("PING: %+v, %v", events, err)
	}
}

// newKeys returns a private key of each kind, with its public key as text.
func newKeys(t testing.TB) (private []crypto.Signer, public []string) {
	t.Helper()
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private = []crypto.Signer{ec, ed}
	for _, key := range private {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		public = append(public, base64.StdEncoding.EncodeToString(der))
	}
	return private, public
}

func TestCase53PublicKeys(t *testing.T) {
	old, oldText := newKeys(t)
	renewed, renewedText := newKeys(t)
	config := func(keys ...string) hmachook.Config {
		return with(simple(), func(c *hmachook.Config) { c.Secrets, c.PublicKeys = nil, keys })
	}
	by := func(key crypto.Signer) *webhook.Delivery {
		d := delivery(`{"id":"e1"}`, nil)
		if err := newVerifier(t, config(oldText...)).SignTo(d.Header, key, "", d.Body, now); err != nil {
			t.Fatal(err)
		}
		return d
	}
	for i := range old {
		both, removed := newVerifier(t, config(renewedText[i], oldText[i])), newVerifier(t, config(renewedText[i]))
		refused(t, both, by(old[i]), "")
		refused(t, both, by(renewed[i]), "")
		refused(t, removed, by(renewed[i]), "")
		refused(t, removed, by(old[i]), webhook.BadSignature)
	}
	// The public key in the place of a secret.
	v := newVerifier(t, config(oldText[0]))
	d := delivery(`{"id":"e1"}`, map[string]string{"X-Signature": hex.EncodeToString(mac(oldText[0], `{"id":"e1"}`))})
	if _, err := v.Verify(t.Context(), d); err == nil {
		t.Error("case 50: accepted an HMAC")
	}
	if err := v.SignTo(http.Header{}, nil, "", nil, now); err == nil {
		t.Error("SignTo signed without a private key")
	}
	if err := newVerifier(t, simple()).SignTo(http.Header{}, old[0], "", nil, now); err == nil {
		t.Error("SignTo signed with a private key for Secrets")
	}
}

func TestPublicKeysAreChecked(t *testing.T) {
	const p384 = "MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAE3//ZfFzo/2xCPdhBAPGNOywYZSeHHKuKAzlgTGzexWp04QL4gUyTw8JD6zDcMLmWfSXqJ8wN5Za5RNxw3jzDeyPW1tO8/2dstUe8YZiPp1iffZc+FEbCMswNCEOqyc91"
	private, _ := newKeys(t)
	der, err := x509.MarshalPKCS8PrivateKey(private[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, key, want string }{
		{"empty", "", "is empty"},
		{"white space", " \n", "is empty"},
		{"a new line", edKey + "\n", "without white space"},
		{"no encoding", "whpk_!", "is neither PEM, base64 nor hexadecimal"},
		{"half a key", edKey[:32], "is no public key"},
		{"another curve", p384, "is an ECDSA key on P-384: want one on P-256"},
		{"low order", strings.Repeat("0", 64), "is a point of low order"},
		{"low order with a sign", strings.Repeat("0", 62) + "80", "is a point of low order"},
		{
			"a private key in PEM", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
			"is a private key",
		},
		{"a private key", base64.StdEncoding.EncodeToString(der), "is no public key"},
		{"two keys in one", edKeyPEM + edKeyPEM, "is neither"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := hmachook.New(discord(test.key))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(),
				"hmachook: Config.PublicKeys[0] is") {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if err != nil && len(test.key) > 8 && strings.Contains(err.Error(), test.key) {
				t.Errorf("the error shows the key: %v", err)
			}
		})
	}
	for name, edit := range map[string]func(*hmachook.Config){
		"Secrets and Config.PublicKeys are both set": func(c *hmachook.Config) { c.Secrets = []string{secret} },
		"Hash has no effect with PublicKeys":         func(c *hmachook.Config) { c.Hash = hmachook.SHA512 },
		"SecretEncoding has no effect":               func(c *hmachook.Config) { c.SecretEncoding = hmachook.Hex },
		"Secrets is required, or PublicKeys":         func(c *hmachook.Config) { c.PublicKeys = nil },
	} {
		if _, err := hmachook.New(with(discord(edKey), edit)); err == nil || !strings.Contains(err.Error(),
			"hmachook: Config."+name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

// A sender that signs with a private key. Its public key has the format of the sender's own documentation.
func ExampleNew_publicKey() {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // the sender has it
	discord, err := hmachook.New(hmachook.Config{
		Name:              "discord",
		PublicKeys:        []string{hex.EncodeToString(key.Public().(ed25519.PublicKey))},
		SignatureHeader:   "X-Signature-Ed25519",
		SignatureEncoding: hmachook.Hex,
		TimestampHeader:   "X-Signature-Timestamp",
		Signed:            "{timestamp}{body}",
		IDPaths:           []string{"id"},
		ScopePath:         "application_id",
	})
	if err != nil {
		panic(err)
	}
	d := &webhook.Delivery{Header: http.Header{}, Body: []byte(`{"id":"846462639134605312","application_id":"11","type":2}`), Time: time.Now()}
	if err := discord.SignTo(d.Header, key, "", d.Body, d.Time); err != nil {
		panic(err)
	}
	events, err := discord.Verify(context.Background(), d)
	if err != nil {
		panic(err)
	}
	fmt.Println(events[0].Message.Tenant, events[0].Message.ID)
	// Output: discord/11 "846462639134605312"
}
