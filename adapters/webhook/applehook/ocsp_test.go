package applehook_test

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

const (
	leafURL         = "http://ocsp.example/leaf"
	intermediateURL = "http://ocsp.example/intermediate"
)

func withOCSP(leaf, intermediate *options) {
	leaf.ocsp, intermediate.ocsp = []string{leafURL}, []string{intermediateURL}
}

// newResponder answers for the authorities of c.
func newResponder(t testing.TB, c chain) *responder {
	return &responder{TB: t, by: func(url string) crypto.Signer {
		if url == leafURL {
			return c.intermediate.key
		}
		return c.root.key
	}}
}

func ask(r *responder) func(*applehook.Config) {
	return func(cfg *applehook.Config) { cfg.OCSP, cfg.HTTPClient = true, &http.Client{Transport: r} }
}

func TestOCSP(t *testing.T) {
	c := newChain(t, withOCSP)
	appointed := issue(t, c.intermediate, options{name: "responder", usage: []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}})
	byLeaf := func(key crypto.Signer) func(string) crypto.Signer {
		return func(url string) crypto.Signer {
			if url == leafURL {
				return key
			}
			return c.root.key
		}
	}
	each := func(change func(*single)) func(*responder) {
		return func(r *responder) { r.change = func(tbs *tbsResponse) { change(&tbs.Responses[0]) } }
	}
	appointing := func(r *responder, cert *issued) { r.by, r.certs = byLeaf(cert.key), []*issued{cert} }
	critical := []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Critical: true, Value: []byte{5, 0}}}
	const accepted, later = "", "later"
	for _, tt := range []struct {
		name   string
		change func(*responder)
		want   string // accepted, later, or a webhook.Refusal
		text   string
	}{
		{"good", func(*responder) {}, accepted, ""},
		{"case 59: the responder is down", func(r *responder) { r.down = true }, later, "connection refused"},
		{"case 59: status 500", func(r *responder) { r.status = 500 }, later, "status"},
		{"case 59: a redirect is not followed", func(r *responder) { r.status = 302 }, later, "status"},
		{"case 59: tryLater", func(r *responder) { r.answer = 3 }, later, "status 3"},
		{"case 59: an empty response", func(r *responder) { r.raw = []byte{} }, later, "OCSP response"},
		{"case 59: not ASN.1", func(r *responder) { r.raw = []byte("<html>") }, later, "OCSP response"},
		{"case 59: an endless response", func(r *responder) { r.raw = make([]byte, 1<<20) }, later, "more than"},
		{
			"revoked", each(func(s *single) { s.Status = revokedAt(t, received.Add(-time.Hour)) }),
			string(webhook.BadSignature), "revoked since 2027",
		},
		{"revoked, in an outdated response", each(func(s *single) {
			s.Status, s.Next = revokedAt(t, received.Add(-time.Hour)), received.Add(-time.Hour)
		}), string(webhook.BadSignature), "revoked"},
		{"revoked, signed by somebody else", func(r *responder) {
			each(func(s *single) { s.Status = revokedAt(t, received) })(r)
			r.by = func(string) crypto.Signer { return c.leaf.key }
		}, later, "not signed"},
		{"unknown", each(func(s *single) { s.Status = unknown }), later, "does not know"},
		{"signed by the leaf", func(r *responder) { r.by = byLeaf(c.leaf.key) }, later, "not signed"},
		{
			"signed by the issuer of another certificate", func(r *responder) { r.by = byLeaf(c.root.key) }, later,
			"not signed",
		},
		{
			"about another serial number", each(func(s *single) { s.CertID.Serial = big.NewInt(7) }), later,
			"another certificate",
		},
		{
			"about another issuer's name", each(func(s *single) { s.CertID.NameHash = make([]byte, 32) }), later,
			"another certificate",
		},
		{
			"about another issuer's key", each(func(s *single) { s.CertID.KeyHash = make([]byte, 32) }), later,
			"another certificate",
		},
		{"with an unknown hash", each(func(s *single) { s.CertID.Algorithm.Algorithm = asn1.ObjectIdentifier{1, 2, 3} }), later, "another certificate"},
		{
			"no answer", func(r *responder) { r.change = func(tbs *tbsResponse) { tbs.Responses = nil } }, later,
			"another certificate",
		},
		{"about another certificate first", func(r *responder) {
			r.change = func(tbs *tbsResponse) {
				other := tbs.Responses[0]
				other.CertID.Serial, other.Status = big.NewInt(7), revokedAt(t, received)
				tbs.Responses = []single{other, tbs.Responses[0]}
			}
		}, accepted, ""},
		{"outdated by 6 minutes", each(func(s *single) { s.Next = received.Add(-6 * time.Minute) }), later, "outdated"},
		{"outdated by 4 minutes", each(func(s *single) { s.Next = received.Add(-4 * time.Minute) }), accepted, ""},
		{"from the future", each(func(s *single) { s.This = received.Add(6 * time.Minute) }), later, "future"},
		{"without a next update, of yesterday", each(func(s *single) { s.This, s.Next = received.Add(-25*time.Hour), time.Time{} }), later, "outdated"},
		{"without a next update, of today", each(func(s *single) { s.This, s.Next = received.Add(-23*time.Hour), time.Time{} }), accepted, ""},
		{"a critical extension of the answer", each(func(s *single) { s.Extra = critical }), later, "critical"},
		{"a critical extension of the response", func(r *responder) { r.change = func(tbs *tbsResponse) { tbs.Extra = critical } }, later, "critical"},
		{"signed by an appointed responder", func(r *responder) { appointing(r, appointed) }, accepted, ""},
		{
			"signed by a responder whose certificate is missing", func(r *responder) { r.by = byLeaf(appointed.key) },
			later, "not signed",
		},
		{"signed by a responder without the usage", func(r *responder) { appointing(r, issue(t, c.intermediate, options{name: "responder"})) }, later, "not signed"},
		{"signed by a responder whose certificate has expired", func(r *responder) {
			appointing(r, issue(t, c.intermediate, options{name: "responder", usage: appointed.ExtKeyUsage, until: received.Add(-time.Second)}))
		}, later, "not signed"},
		{"signed by another authority's responder", func(r *responder) {
			appointing(r, issue(t, newChain(t).intermediate, options{name: "responder", usage: appointed.ExtKeyUsage}))
		}, later, "not signed"},
		{"signed by a responder that the leaf appointed", func(r *responder) { // the leaf is no authority
			appointing(r, issue(t, c.leaf, options{name: "responder", usage: appointed.ExtKeyUsage}))
		}, later, "not signed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newResponder(t, c)
			tt.change(r)
			_, err := verify(t, newVerifier(t, c, ask(r)), body(t, c.sign(t, full(t, c))))
			got := string(webhook.RefusalOf(err))
			if err != nil && got == "" {
				got = later
			}
			if got != tt.want || err != nil && !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%q: %v\nwant %q: …%s…", got, err, tt.want, tt.text)
			}
		})
	}
	t.Run("R5: both certificates are asked about, once for all signed parts", func(t *testing.T) {
		r := newResponder(t, c)
		if _, err := verify(t, newVerifier(t, c, ask(r)), body(t, c.sign(t, full(t, c)))); err != nil {
			t.Fatal(err)
		}
		const want = "POST " + intermediateURL + " application/ocsp-request\nPOST " + leafURL +
			" application/ocsp-request"
		if got := strings.Join(r.requests, "\n"); got != want {
			t.Errorf("requests:\n%s", got)
		}
	})
	t.Run("a hash of SHA-1 names the same certificate", func(t *testing.T) {
		r := newResponder(t, c)
		r.change = func(tbs *tbsResponse) { sha1ID(t, c, &tbs.Responses[0].CertID) }
		if _, err := verify(t, newVerifier(t, c, ask(r)), body(t, c.sign(t, full(t, c)))); err != nil {
			t.Error(err)
		}
	})
	t.Run("a forgery causes no request", func(t *testing.T) {
		r, other := newResponder(t, c), newChain(t, withOCSP)
		_, _ = verify(t, newVerifier(t, c, ask(r)), body(t, other.sign(t, full(t, c))))
		// Apple's certificates are public
		stolen := signJWS(t, m{"alg": "ES256", "x5c": c.x5c()}, full(t, c), other.leaf.key)
		_, _ = verify(t, newVerifier(t, c, ask(r)), body(t, stolen))
		if n := r.count(); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("a certificate without a responder", func(t *testing.T) {
		c := newChain(t)
		_, err := verify(t, newVerifier(t, c, ask(newResponder(t, c))), body(t, c.sign(t, full(t, c))))
		if err == nil || webhook.RefusalOf(err) != "" || !strings.Contains(err.Error(), "no OCSP responder") {
			t.Error(err)
		}
	})
	t.Run("R5: with online checks, the certificates must be valid now", func(t *testing.T) {
		n := with(notification(), m{"signedDate": notAfter.Add(-time.Hour).UnixMilli()})
		_, err := verifyAt(t, newVerifier(t, c, ask(newResponder(t, c))), body(t, c.sign(t, n)),
			notAfter.Add(time.Hour))
		if webhook.RefusalOf(err) != webhook.BadSignature || !strings.Contains(err.Error(), "expired") {
			t.Error(err)
		}
	})
}

// sha1ID replaces the hashes of id by those of SHA-1.
func sha1ID(t testing.TB, c chain, id *certID) {
	issuer := c.root
	if id.Serial.Cmp(c.leaf.SerialNumber) == 0 {
		issuer = c.intermediate
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(issuer.RawSubjectPublicKeyInfo, &info); err != nil {
		t.Fatal(err)
	}
	sum := func(b []byte) []byte {
		h := crypto.SHA1.New()
		h.Write(b)
		return h.Sum(nil)
	}
	if sha := sha256.Sum256(info.Key.Bytes); string(sha[:]) != string(id.KeyHash) {
		t.Error("the request does not have the SHA-256 of the issuer's key")
	}
	id.Algorithm = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}}
	id.NameHash, id.KeyHash = sum(issuer.RawSubject), sum(info.Key.Bytes)
}

func (c chain) marks() []asn1.ObjectIdentifier { return []asn1.ObjectIdentifier{markLeaf} }
