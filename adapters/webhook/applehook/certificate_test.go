package applehook_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// Chains of certificates that are not Apple's.
func TestVerifyChain(t *testing.T) {
	c := newChain(t)
	other := newChain(t) // has all markers, and the same names
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	under := func(change func(leaf, intermediate *options)) chain { return newChainUnder(t, c.root, change) }
	mixed := func(leaf, intermediate, root *issued) chain { return chain{leaf, intermediate, root} }
	second := issue(t, c.intermediate, options{name: "second", ca: true, marks: []asn1.ObjectIdentifier{markIntermediate}})
	deep := mixed(issue(t, second, options{name: "leaf", marks: []asn1.ObjectIdentifier{markLeaf}}), second, c.root)
	direct := mixed(issue(t, c.root, options{name: "leaf", marks: []asn1.ObjectIdentifier{markLeaf}}),
		c.intermediate, c.root)

	var cases []refusedCase
	for _, tt := range []struct {
		name string
		c    chain
		text string
	}{
		{"case 56: the attacker's own chain with the right extensions", other, "unknown authority"},
		{
			"case 56: the attacker's chain that names the real root", mixed(other.leaf, other.intermediate, c.root),
			"unknown authority",
		},
		{
			"case 56: the real intermediate above the attacker's leaf", mixed(other.leaf, c.intermediate, c.root),
			"unknown authority",
		},
		{
			"case 56: a developer's leaf, without the marker", under(func(leaf, _ *options) { leaf.marks = nil }),
			"leaf certificate lacks",
		},
		{"case 56: a leaf with another marker", under(func(leaf, _ *options) { leaf.marks = []asn1.ObjectIdentifier{{1, 2, 840, 113635, 100, 6, 11, 2}} }), "leaf certificate lacks"},
		{"case 56: an intermediate without the marker", under(func(_, intermediate *options) { intermediate.marks = nil }), "intermediate certificate lacks"},
		{
			"R4: an intermediate that is no authority", under(func(_, intermediate *options) { intermediate.ca = false }),
			"not one of an authority",
		},
		{"R4: a leaf that is an authority", under(func(leaf, _ *options) { leaf.ca = true }), "one of an authority"},
		{"R4: a leaf with an RSA key", under(func(leaf, _ *options) { leaf.signer = rsaKey }), "P-256"},
		{"R4: a chain of 4", deep, "unknown authority"},
		{"R4: a chain of 2", direct, "length 3"},
		{"an unknown critical extension", under(func(leaf, _ *options) {
			leaf.change = func(cert *x509.Certificate) { cert.ExtraExtensions[0].Critical = true }
		}), "unhandled critical extension"},
	} {
		cases = append(cases, refusedCase{tt.name, body(t, tt.c.sign(t, full(t, c))), webhook.BadSignature, tt.text})
	}
	refuseAll(t, newVerifier(t, c), cases)

	t.Run("a forger's text in the log is short", func(t *testing.T) {
		longName := func(_, intermediate *options) { intermediate.name = strings.Repeat("x", 3_000) }
		long := newChain(t, longName)
		for _, b := range [][]byte{
			body(t, long.sign(t, notification())),
			body(t, chain{newChain(t, longName).leaf, long.intermediate, c.root}.sign(t, notification())),
			[]byte(`{"` + strings.Repeat("x", 100_000) + `":1,"` + strings.Repeat("x", 100_000) + `":1}`),
			body(t, signJWS(t, m{"alg": strings.Repeat("x", 100_000)}, notification(), c.leaf.key)),
		} {
			if _, err := verify(t, newVerifier(t, c), b); err == nil || len(err.Error()) > 500 {
				t.Errorf("%d bytes: %.500v", len(err.Error()), err)
			}
		}
	})
	t.Run("R4: a leaf for any usage", func(t *testing.T) {
		c := under(func(leaf, _ *options) { leaf.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} })
		if _, err := verify(t, newVerifier(t, c), body(t, c.sign(t, full(t, c)))); err != nil {
			t.Error(err)
		}
	})
	t.Run("case 56: Apple's root does not trust a test's chain", func(t *testing.T) {
		v := newVerifier(t, c, func(cfg *applehook.Config) { cfg.Roots = nil })
		if _, err := verify(t, v, body(t, c.sign(t, full(t, c)))); webhook.RefusalOf(err) != webhook.BadSignature ||
			!strings.Contains(err.Error(), "unknown authority") {
			t.Error(err)
		}
	})
}

// A chain that was verified once is remembered. That must not let anything in that a new Verifier refuses.
func TestVerifyRemembers(t *testing.T) {
	c, other := newChain(t), newChain(t)
	v := newVerifier(t, c)
	date := func(at time.Time) m { return with(notification(), m{"signedDate": at.UnixMilli()}) }
	if _, err := verify(t, v, body(t, c.sign(t, full(t, c)))); err != nil {
		t.Fatal(err)
	}
	refuseAll(t, v, []refusedCase{
		{
			"before the certificates' validity", body(t, c.sign(t, date(notBefore.Add(-time.Second)))),
			webhook.BadSignature, "not yet valid",
		},
		{"after it", body(t, c.sign(t, date(notAfter.Add(time.Second)))), webhook.BadSignature, "expired"},
		{
			"another leaf", body(t, chain{other.leaf, c.intermediate, c.root}.sign(t, notification())),
			webhook.BadSignature, "unknown authority",
		},
		{
			"another intermediate", body(t, chain{c.leaf, other.intermediate, c.root}.sign(t, notification())),
			webhook.BadSignature, "unknown authority",
		},
		{
			"another key", body(t, signJWS(t, m{"alg": "ES256", "x5c": c.x5c()}, notification(), other.leaf.key)),
			webhook.BadSignature, "signature is wrong",
		},
	})
	for range 100 { // more than are remembered
		another := newChainUnder(t, c.root)
		if _, err := verify(t, v, body(t, another.sign(t, notification()))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := verify(t, v, body(t, c.sign(t, full(t, c)))); err != nil {
		t.Error(err)
	}
}
