package applehook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
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
	lastLetter := func(s string) string {
		// another letter with the same bytes: it differs in the bits after the last byte only
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
		{
			"case 50: the attacker's jwk", body(t, signJWS(t, with(header, m{"jwk": jwk}), n, attacker)),
			webhook.BadSignature, "signature is wrong",
		},
		{"case 50: the attacker's jku", body(t, signJWS(t, with(header, m{"jku": "https://evil.example/jwks", "x5u": "https://evil.example/x.pem"}), n, attacker)), webhook.BadSignature, "signature is wrong"},
		{"R2: crit", withHeader(with(header, m{"crit": []string{"exp"}, "exp": 1})), webhook.Unsigned, "crit"},
		{"R2: empty crit", withHeader(with(header, m{"crit": json.RawMessage("null")})), webhook.Unsigned, "crit"},
		{"R2: b64", withHeader(with(header, m{"b64": false})), webhook.Unsigned, "b64"},

		{"R2: two parts", body(t, parts[0]+"."+parts[1]), webhook.Unsigned, "2 parts"},
		{"R2: four parts", body(t, good+".x"), webhook.Unsigned, "4 parts"},
		{"R2: padding", withSignature(parts[2] + "=="), webhook.Unsigned, "part 3"},
		{"R2: trailing bits", withSignature(lastLetter(parts[2])), webhook.Unsigned, "part 3"},
		{
			"R2: a line break, which encoding/base64 skips", withSignature(parts[2][:40] + "\n" + parts[2][40:]),
			webhook.Unsigned, "line break",
		},
		{"R2: the standard alphabet", withSignature(base64.RawStdEncoding.EncodeToString(append([]byte{0xfb, 0xff}, signature[2:]...))), webhook.Unsigned, "part 3"},
		{"R2: a header that is not an object", withHeader("[]"), webhook.Unsigned, "header"},
		{"case 47: empty signature", withSignature(""), webhook.Unsigned, "0 bytes"},
		{"R6: the signature as ASN.1", withSignature(b64url(asn1Signature(t, c, parts))), webhook.Unsigned, "bytes"},
		{"R6: a truncated signature", withSignature(b64url(signature[:63])), webhook.Unsigned, "63 bytes"},
		{"R6: r and s are 0", withSignature(b64url(make([]byte, 64))), webhook.BadSignature, "signature is wrong"},
		{"R6: another payload", body(t, parts[0]+"."+b64url(toJSON(t, with(n, m{"notificationType": "REFUND"})))+"."+parts[2]), webhook.BadSignature, "signature is wrong"},
		{
			"R6: another header", body(t, b64url(toJSON(t, with(header, m{"kid": "x"})))+"."+parts[1]+"."+parts[2]),
			webhook.BadSignature, "signature is wrong",
		},

		{"case 56: no x5c", withHeader(with(header, m{"x5c": nil})), webhook.Unsigned, "x5c"},
		{"case 56: x5c is a string", withHeader(with(header, m{"x5c": x5c[0]})), webhook.Unsigned, "x5c"},
		{"case 56: 0 certificates", withHeader(with(header, m{"x5c": []string{}})), webhook.Unsigned, "0 certificates"},
		{"case 56: 1 certificate", withHeader(with(header, m{"x5c": x5c[:1]})), webhook.Unsigned, "1 certificates"},
		{"case 56: 2 certificates", withHeader(with(header, m{"x5c": x5c[:2]})), webhook.Unsigned, "2 certificates"},
		{
			"case 56: 4 certificates", withHeader(with(header, m{"x5c": append(c.x5c(), x5c[2])})), webhook.Unsigned,
			"4 certificates",
		},
		{
			"case 56: reversed order", withHeader(with(header, m{"x5c": []string{x5c[2], x5c[1], x5c[0]}})),
			webhook.BadSignature, "P-256",
		},
		{"case 56: leaf and intermediate exchanged", withHeader(with(header, m{"x5c": []string{x5c[1], x5c[0], x5c[2]}})), webhook.BadSignature, "P-256"},
		{
			"case 56: bad base64 in the leaf", withHeader(with(header, m{"x5c": []string{x5c[0] + "!", x5c[1], x5c[2]}})),
			webhook.Unsigned, "x5c[0]",
		},
		{
			"case 56: bad base64 in the root", withHeader(with(header, m{"x5c": []string{x5c[0], x5c[1], "%"}})),
			webhook.Unsigned, "x5c[2]",
		},
		{
			"case 56: base64url in x5c", withHeader(with(header, m{"x5c": []string{b64url(c.leaf.Raw), x5c[1], x5c[2]}})),
			webhook.Unsigned, "x5c[0]",
		},
		{"case 56: line breaks in x5c", withHeader(with(header, m{"x5c": []string{x5c[0][:64] + "\n" + x5c[0][64:], x5c[1], x5c[2]}})), webhook.Unsigned, "line break"},
		{"case 56: not a certificate", withHeader(with(header, m{"x5c": []string{b64([]byte("hello")), x5c[1], x5c[2]}})), webhook.Unsigned, "x5c[0]"},
		{"case 56: the intermediate is not a certificate", withHeader(with(header, m{"x5c": []string{x5c[0], b64([]byte("hello")), x5c[2]}})), webhook.Unsigned, "x5c[1]"},
		{"case 56: bytes after the leaf", withHeader(with(header, m{"x5c": []string{b64(append(c.leaf.Raw, 0)), x5c[1], x5c[2]}})), webhook.Unsigned, "x5c[0]"},
		{
			"case 56: a number in x5c", withHeader(with(header, m{"x5c": []any{x5c[0], x5c[1], 3}})),
			webhook.Unsigned, "x5c",
		},
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
