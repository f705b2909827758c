package applehook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// The form of a JWS and its algorithm. The verifier never lets the header choose them.
func TestVerifyJWS(t *testing.T) {
	c := newChain(t)
	n := full(t, c)
	good := c.sign(t, n)
	parts := strings.Split(good, ".")
	header := m{"alg": "ES256", "x5c": c.x5c()}
	withHeader := func(h any) []byte { return body(t, signJWS(t, h, n, c.leaf.key)) }
	x5c := c.x5c()
	hs256 := func() []byte { // the public key as the secret of an HMAC
		head := b64url(toJSON(t, with(header, m{"alg": "HS256"}))) + "." + parts[1]
		public, err := x509.MarshalPKIXPublicKey(c.leaf.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(head))
		return body(t, head+"."+b64url(mac.Sum(nil)))
	}
	es384 := newChain(t, func(leaf, _ *options) { leaf.curve = elliptic.P384() })
	attacker, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	jwk := m{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	withSignature := func(s string) []byte { return body(t, parts[0]+"."+parts[1]+"."+s) }
	lastLetter := func(s string) string { // another letter with the same bytes: it differs in the bits after the last byte only
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		return s[:len(s)-1] + string(letters[strings.IndexByte(letters, s[len(s)-1])+1])
	}

	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"case 50: alg none", withHeader(with(header, m{"alg": "none"})), webhook.Unsigned, "alg"},
		{"case 50: alg none without a signature", body(t, b64url(toJSON(t, with(header, m{"alg": "none"})))+"."+parts[1]+"."), webhook.Unsigned, "alg"},
		{"case 50: HS256 with the public key", hs256(), webhook.Unsigned, "alg"},
		{"case 50: ES384", body(t, es384.sign(t, n)), webhook.Unsigned, "96 bytes"},
		{"case 50: ES384 in the header", withHeader(with(header, m{"alg": "ES384"})), webhook.Unsigned, "alg"},
		{"case 50: es256", withHeader(with(header, m{"alg": "es256"})), webhook.Unsigned, "alg"},
		{"case 50: Alg", withHeader(with(header, m{"alg": nil, "Alg": "ES256"})), webhook.Unsigned, "alg"},
		{"case 50: no alg", withHeader(with(header, m{"alg": nil})), webhook.Unsigned, "alg"},
		{"case 50: alg is an array", withHeader(with(header, m{"alg": []string{"ES256"}})), webhook.Unsigned, "alg"},
		{"case 50: two algs", withHeader(`{"alg":"none","alg":"ES256"}`), webhook.Unsigned, "twice"},
		{"case 50: the attacker's jwk", body(t, signJWS(t, with(header, m{"jwk": jwk}), n, attacker)), webhook.BadSignature, "signature is wrong"},
		{"case 50: the attacker's jku", body(t, signJWS(t, with(header, m{"jku": "https://evil.example/jwks", "x5u": "https://evil.example/x.pem"}), n, attacker)), webhook.BadSignature, "signature is wrong"},
		{"R2: crit", withHeader(with(header, m{"crit": []string{"exp"}, "exp": 1})), webhook.Unsigned, "crit"},
		{"R2: empty crit", withHeader(with(header, m{"crit": json.RawMessage("null")})), webhook.Unsigned, "crit"},
		{"R2: b64", withHeader(with(header, m{"b64": false})), webhook.Unsigned, "b64"},

		{"R2: two parts", body(t, parts[0]+"."+parts[1]), webhook.Unsigned, "2 parts"},
		{"R2: four parts", body(t, good+".x"), webhook.Unsigned, "4 parts"},
		{"R2: padding", withSignature(parts[2] + "=="), webhook.Unsigned, "part 3"},
		{"R2: trailing bits", withSignature(lastLetter(parts[2])), webhook.Unsigned, "part 3"},
		{"R2: a line break, which encoding/base64 skips", withSignature(parts[2][:40] + "\n" + parts[2][40:]), webhook.Unsigned, "line break"},
		{"R2: the standard alphabet", withSignature(base64.RawStdEncoding.EncodeToString(append([]byte{0xfb, 0xff}, signature[2:]...))), webhook.Unsigned, "part 3"},
		{"R2: a header that is not an object", withHeader("[]"), webhook.Unsigned, "header"},
		{"case 47: empty signature", withSignature(""), webhook.Unsigned, "0 bytes"},
		{"R6: the signature as ASN.1", withSignature(b64url(asn1Signature(t, c, parts))), webhook.Unsigned, "bytes"},
		{"R6: a truncated signature", withSignature(b64url(signature[:63])), webhook.Unsigned, "63 bytes"},
		{"R6: r and s are 0", withSignature(b64url(make([]byte, 64))), webhook.BadSignature, "signature is wrong"},
		{"R6: another payload", body(t, parts[0]+"."+b64url(toJSON(t, with(n, m{"notificationType": "REFUND"})))+"."+parts[2]), webhook.BadSignature, "signature is wrong"},
		{"R6: another header", body(t, b64url(toJSON(t, with(header, m{"kid": "x"})))+"."+parts[1]+"."+parts[2]), webhook.BadSignature, "signature is wrong"},

		{"case 56: no x5c", withHeader(with(header, m{"x5c": nil})), webhook.Unsigned, "x5c"},
		{"case 56: x5c is a string", withHeader(with(header, m{"x5c": x5c[0]})), webhook.Unsigned, "x5c"},
		{"case 56: 0 certificates", withHeader(with(header, m{"x5c": []string{}})), webhook.Unsigned, "0 certificates"},
		{"case 56: 1 certificate", withHeader(with(header, m{"x5c": x5c[:1]})), webhook.Unsigned, "1 certificates"},
		{"case 56: 2 certificates", withHeader(with(header, m{"x5c": x5c[:2]})), webhook.Unsigned, "2 certificates"},
		{"case 56: 4 certificates", withHeader(with(header, m{"x5c": append(c.x5c(), x5c[2])})), webhook.Unsigned, "4 certificates"},
		{"case 56: reversed order", withHeader(with(header, m{"x5c": []string{x5c[2], x5c[1], x5c[0]}})), webhook.BadSignature, "P-256"},
		{"case 56: leaf and intermediate exchanged", withHeader(with(header, m{"x5c": []string{x5c[1], x5c[0], x5c[2]}})), webhook.BadSignature, "P-256"},
		{"case 56: bad base64 in the leaf", withHeader(with(header, m{"x5c": []string{x5c[0] + "!", x5c[1], x5c[2]}})), webhook.Unsigned, "x5c[0]"},
		{"case 56: bad base64 in the root", withHeader(with(header, m{"x5c": []string{x5c[0], x5c[1], "%"}})), webhook.Unsigned, "x5c[2]"},
		{"case 56: base64url in x5c", withHeader(with(header, m{"x5c": []string{b64url(c.leaf.Raw), x5c[1], x5c[2]}})), webhook.Unsigned, "x5c[0]"},
		{"case 56: line breaks in x5c", withHeader(with(header, m{"x5c": []string{x5c[0][:64] + "\n" + x5c[0][64:], x5c[1], x5c[2]}})), webhook.Unsigned, "line break"},
		{"case 56: not a certificate", withHeader(with(header, m{"x5c": []string{b64([]byte("hello")), x5c[1], x5c[2]}})), webhook.Unsigned, "x5c[0]"},
		{"case 56: the intermediate is not a certificate", withHeader(with(header, m{"x5c": []string{x5c[0], b64([]byte("hello")), x5c[2]}})), webhook.Unsigned, "x5c[1]"},
		{"case 56: bytes after the leaf", withHeader(with(header, m{"x5c": []string{b64(append(c.leaf.Raw, 0)), x5c[1], x5c[2]}})), webhook.Unsigned, "x5c[0]"},
		{"case 56: a number in x5c", withHeader(with(header, m{"x5c": []any{x5c[0], x5c[1], 3}})), webhook.Unsigned, "x5c"},
	})
	t.Run("R3: the third certificate is not used", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, c), withHeader(with(header, m{"x5c": []string{x5c[0], x5c[1], b64([]byte("any"))}, "kid": "any", "typ": "JWT"}))); err != nil {
			t.Error(err)
		}
	})
}

// asn1Signature signs with the other encoding of signatures.
func asn1Signature(t *testing.T, c chain, parts []string) []byte {
	t.Helper()
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	der, err := ecdsa.SignASN1(rand.Reader, c.leaf.key.(*ecdsa.PrivateKey), hash[:])
	if err != nil {
		t.Fatal(err)
	}
	return der
}

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
	direct := mixed(issue(t, c.root, options{name: "leaf", marks: []asn1.ObjectIdentifier{markLeaf}}), c.intermediate, c.root)

	var cases []refusedCase
	for _, tt := range []struct {
		name string
		c    chain
		text string
	}{
		{"case 56: the attacker's own chain with the right extensions", other, "unknown authority"},
		{"case 56: the attacker's chain that names the real root", mixed(other.leaf, other.intermediate, c.root), "unknown authority"},
		{"case 56: the real intermediate above the attacker's leaf", mixed(other.leaf, c.intermediate, c.root), "unknown authority"},
		{"case 56: a developer's leaf, without the marker", under(func(leaf, _ *options) { leaf.marks = nil }), "leaf certificate lacks"},
		{"case 56: a leaf with another marker", under(func(leaf, _ *options) { leaf.marks = []asn1.ObjectIdentifier{{1, 2, 840, 113635, 100, 6, 11, 2}} }), "leaf certificate lacks"},
		{"case 56: an intermediate without the marker", under(func(_, intermediate *options) { intermediate.marks = nil }), "intermediate certificate lacks"},
		{"R4: an intermediate that is no authority", under(func(_, intermediate *options) { intermediate.ca = false }), "not one of an authority"},
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

	t.Run("R4: a leaf for any usage", func(t *testing.T) {
		c := under(func(leaf, _ *options) { leaf.usage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} })
		if _, err := verify(t, newVerifier(t, c), body(t, c.sign(t, full(t, c)))); err != nil {
			t.Error(err)
		}
	})
	t.Run("case 56: Apple's root does not trust a test's chain", func(t *testing.T) {
		v := newVerifier(t, c, func(cfg *applehook.Config) { cfg.Roots = nil })
		if _, err := verify(t, v, body(t, c.sign(t, full(t, c)))); webhook.RefusalOf(err) != webhook.BadSignature || !strings.Contains(err.Error(), "unknown authority") {
			t.Error(err)
		}
	})
}

// The signed parts of a notification are verified like the whole.
func TestVerifyNested(t *testing.T) {
	c, other := newChain(t), newChain(t)
	noMark := newChainUnder(t, c.root, func(leaf, _ *options) { leaf.marks = nil })
	part := func(name string, jws any) []byte {
		return body(t, c.sign(t, with(notification(), m{"data": with(data(), m{name: jws})})))
	}
	const tx, renew, app = "signedTransactionInfo", "signedRenewalInfo", "signedAppTransactionInfo"
	appTransaction := m{"bundleId": bundle, "appAppleId": appID, "receiptType": "Production", "receiptCreationDate": signed.UnixMilli(), "appTransactionId": "704"}
	appPart := func(jws any) []byte {
		return body(t, c.sign(t, with(notification(), m{"data": nil, "appData": with(data(), m{app: jws})})))
	}
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"case 56: transaction signed by another chain", part(tx, other.sign(t, transaction())), webhook.BadSignature, "data.signedTransactionInfo"},
		{"case 56: transaction signed by a developer", part(tx, noMark.sign(t, transaction())), webhook.BadSignature, "lacks"},
		{"case 56: transaction of another bundle", part(tx, c.sign(t, with(transaction(), m{"bundleId": "com.example.other"}))), webhook.WrongApp, "com.example.other"},
		{"case 56: transaction without a bundle", part(tx, c.sign(t, with(transaction(), m{"bundleId": nil}))), webhook.WrongApp, "bundleId"},
		{"R8: transaction of the sandbox", part(tx, c.sign(t, with(transaction(), m{"environment": "Sandbox"}))), webhook.WrongApp, "Sandbox"},
		{"R8: transaction without a signature", part(tx, "x"), webhook.Unsigned, "1 parts"},
		{"R8: empty transaction", part(tx, ""), webhook.Unsigned, "1 parts"},
		{"R8: transaction as an object", part(tx, transaction()), webhook.Malformed, "signedTransactionInfo"},
		{"R8: transaction that is not JSON", part(tx, c.sign(t, "hello")), webhook.Malformed, "signedTransactionInfo"},
		{"case 71: transaction with a duplicate name", part(tx, c.sign(t, `{"bundleId":"x",`+string(toJSON(t, transaction()))[1:])), webhook.Malformed, "twice"},
		{"R8: renewal signed by another chain", part(renew, other.sign(t, renewal())), webhook.BadSignature, "data.signedRenewalInfo"},
		{"R8: renewal of the sandbox", part(renew, c.sign(t, with(renewal(), m{"environment": "Sandbox"}))), webhook.WrongApp, "Sandbox"},
		{"R8: app transaction signed by another chain", appPart(other.sign(t, appTransaction)), webhook.BadSignature, "appData.signedAppTransactionInfo"},
		{"R8: app transaction of another bundle", appPart(c.sign(t, with(appTransaction, m{"bundleId": "x"}))), webhook.WrongApp, "bundleId"},
		{"R8: app transaction of another app", appPart(c.sign(t, with(appTransaction, m{"appAppleId": 7}))), webhook.WrongApp, "appAppleId"},
		{"R8: app transaction of the sandbox", appPart(c.sign(t, with(appTransaction, m{"receiptType": "Sandbox"}))), webhook.WrongApp, "receiptType"},
		{"case 57: transaction signed in the far future", part(tx, c.sign(t, with(transaction(), m{"signedDate": notAfter.AddDate(50, 0, 0).UnixMilli()}))), webhook.BadSignature, "expired"},
		{"case 57: transaction signed at 1e30", part(tx, c.sign(t, with(transaction(), m{"signedDate": json.RawMessage("1e30")}))), webhook.BadTime, "signedDate"},
		{"R8: transactionId is a number", part(tx, c.sign(t, with(transaction(), m{"transactionId": 1}))), webhook.Malformed, "transactionId"},
	})
	t.Run("R8: an app transaction", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c), appPart(c.sign(t, appTransaction)))
		if err != nil {
			t.Fatal(err)
		}
		n, err := applehook.Decode(&event.Message)
		if err != nil || n.AppTransaction == nil || n.AppTransaction.AppTransactionID != "704" || n.AppData.BundleID != bundle {
			t.Errorf("%+v, %v", n, err)
		}
	})
	t.Run("R8: null is no transaction", func(t *testing.T) {
		event, err := verify(t, newVerifier(t, c), part(tx, json.RawMessage("null")))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := applehook.Decode(&event.Message); err != nil || n.Transaction != nil {
			t.Error(n, err)
		}
	})
}

// Signed times. The certificates of these chains are valid in 2026 and 2027.
func TestVerifyTime(t *testing.T) {
	c := newChain(t)
	date := func(v any) []byte { return body(t, c.sign(t, with(notification(), m{"signedDate": v}))) }
	raw := func(s string) []byte { return date(json.RawMessage(s)) }
	refuseAll(t, newVerifier(t, c), []refusedCase{
		{"case 57: 0", date(0), webhook.BadTime, "signedDate"},
		{"case 57: a time of 1970", date(1), webhook.BadSignature, "not yet valid"},
		{"case 57: the past", date(notBefore.Add(-time.Second).UnixMilli()), webhook.BadSignature, "not yet valid"},
		{"case 57: seconds instead of milliseconds", date(signed.Unix()), webhook.BadSignature, "not yet valid"},
		{"case 57: the far future", date(notAfter.AddDate(100, 0, 0).UnixMilli()), webhook.BadSignature, "expired"},
		{"case 57: after the year 9000", raw("999999999999999999"), webhook.BadTime, "signedDate"},
		{"E22: 2^62", raw("4611686018427387904"), webhook.BadTime, "signedDate"},
		{"E22: -2^63", raw("-9223372036854775808"), webhook.BadTime, "signedDate"},
		{"case 57: negative", date(-signed.UnixMilli()), webhook.BadTime, "signedDate"},
		{"case 57: a string", date("1772600765000"), webhook.BadTime, "signedDate"},
		{"case 57: 1e30", raw("1e30"), webhook.BadTime, "signedDate"},
		{"case 57: 1.5", raw("1772600765000.5"), webhook.BadTime, "signedDate"},
		{"case 57: an exponent", raw("1.772600765e12"), webhook.BadTime, "signedDate"},
		{"case 57: an object", raw("{}"), webhook.BadTime, "signedDate"},
		{"case 57: true", raw("true"), webhook.BadTime, "signedDate"},
		{"5 minutes and 1 ms ahead", date(received.Add(5*time.Minute + time.Millisecond).UnixMilli()), webhook.BadTime, "ahead"},
		{"MaxAge and 1 ms ago", date(received.Add(-30*24*time.Hour - time.Millisecond).UnixMilli()), webhook.BadTime, "MaxAge"},
	})
	for _, tt := range []struct {
		name string
		body []byte
		at   time.Time
	}{
		{"exactly 5 minutes ahead", date(received.Add(5 * time.Minute).UnixMilli()), received},
		{"exactly MaxAge ago", date(received.Add(-30 * 24 * time.Hour).UnixMilli()), received},
		{"Apple's last retry", date(received.Add(-157 * time.Hour).UnixMilli()), received},
		{"case 57: an expired leaf, but the signed date is inside of its validity", date(notAfter.Add(-time.Hour).UnixMilli()), notAfter.Add(24 * time.Hour)},
		{"R5: no signed date, so the time of the delivery counts", date(nil), received},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := verifyAt(t, newVerifier(t, c), tt.body, tt.at); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("R5: no signed date, and the leaf has expired", func(t *testing.T) {
		if _, err := verifyAt(t, newVerifier(t, c), date(nil), notAfter.Add(time.Hour)); webhook.RefusalOf(err) != webhook.BadSignature {
			t.Error(err)
		}
	})
	t.Run("a forged bad time is a bad signature", func(t *testing.T) {
		if _, err := verify(t, newVerifier(t, newChain(t)), raw("1e30")); webhook.RefusalOf(err) != webhook.BadSignature {
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
		{"before the certificates' validity", body(t, c.sign(t, date(notBefore.Add(-time.Second)))), webhook.BadSignature, "not yet valid"},
		{"after it", body(t, c.sign(t, date(notAfter.Add(time.Second)))), webhook.BadSignature, "expired"},
		{"another leaf", body(t, chain{other.leaf, c.intermediate, c.root}.sign(t, notification())), webhook.BadSignature, "unknown authority"},
		{"another intermediate", body(t, chain{c.leaf, other.intermediate, c.root}.sign(t, notification())), webhook.BadSignature, "unknown authority"},
		{"another key", body(t, signJWS(t, m{"alg": "ES256", "x5c": c.x5c()}, notification(), other.leaf.key)), webhook.BadSignature, "signature is wrong"},
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
