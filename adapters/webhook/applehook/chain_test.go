package applehook_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"testing"
	"time"
)

var (
	markLeaf         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	markIntermediate = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}

	notBefore = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	notAfter  = time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)

	serial int64
)

// issued is a certificate with its key.
type issued struct {
	*x509.Certificate
	key crypto.Signer
}

// options describe a certificate. The zero value is a leaf of the App Store.
type options struct {
	ca     bool
	marks  []asn1.ObjectIdentifier
	curve  elliptic.Curve
	signer crypto.Signer // the key; nil: a new one on curve
	name   string
	usage  []x509.ExtKeyUsage
	ocsp   []string
	until  time.Time
	change func(*x509.Certificate)
}

// issue makes a certificate. parent is nil for a root.
func issue(t testing.TB, parent *issued, o options) *issued {
	t.Helper()
	if o.curve == nil {
		o.curve = elliptic.P256()
	}
	if o.signer == nil {
		key, err := ecdsa.GenerateKey(o.curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		o.signer = key
	}
	if o.until.IsZero() {
		o.until = notAfter
	}
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: o.name},
		NotBefore: notBefore, NotAfter: o.until,
		BasicConstraintsValid: true, IsCA: o.ca, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: o.usage,
		OCSPServer: o.ocsp,
	}
	if o.ca {
		template.KeyUsage = x509.KeyUsageCertSign
	}
	for _, mark := range o.marks {
		template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{Id: mark, Value: asn1.NullBytes})
	}
	if o.change != nil {
		o.change(template)
	}
	by := &issued{template, o.signer}
	if parent != nil {
		by = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, o.signer.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{cert, o.signer}
}

// chain is what signs a notification.
type chain struct{ leaf, intermediate, root *issued }

// newChain makes a chain as Apple's is. Each change may spoil the options of leaf and intermediate.
func newChain(t testing.TB, changes ...func(leaf, intermediate *options)) chain {
	t.Helper()
	return newChainUnder(t, issue(t, nil, options{name: "root", ca: true, curve: elliptic.P384()}), changes...)
}

func newChainUnder(t testing.TB, root *issued, changes ...func(leaf, intermediate *options)) chain {
	t.Helper()
	leaf := options{name: "leaf", marks: []asn1.ObjectIdentifier{markLeaf}}
	intermediate := options{
		name: "intermediate", ca: true, curve: elliptic.P384(),
		marks: []asn1.ObjectIdentifier{markIntermediate},
	}
	for _, change := range changes {
		change(&leaf, &intermediate)
	}
	c := chain{root: root, intermediate: issue(t, root, intermediate)}
	c.leaf = issue(t, c.intermediate, leaf)
	return c
}

func (c chain) roots() []*x509.Certificate { return []*x509.Certificate{c.root.Certificate} }

// x5c is the header's member.
func (c chain) x5c() []string {
	return []string{b64(c.leaf.Raw), b64(c.intermediate.Raw), b64(c.root.Raw)}
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func b64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign returns a JWS as Apple makes it. payload is JSON, or a value.
func (c chain) sign(t testing.TB, payload any) string {
	t.Helper()
	return signJWS(t, map[string]any{"alg": "ES256", "x5c": c.x5c()}, payload, c.leaf.key)
}

// signJWS signs any header.
func signJWS(t testing.TB, header, payload any, key crypto.Signer) string {
	t.Helper()
	signed := b64url(toJSON(t, header)) + "." + b64url(toJSON(t, payload))
	hash := sha256.Sum256([]byte(signed))
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok { // a signature of another kind, as long as that of ES256
		return signed + "." + b64url(make([]byte, 64))
	}
	r, s, err := ecdsa.Sign(rand.Reader, ec, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	size := (ec.Curve.Params().BitSize + 7) / 8
	signature := make([]byte, 2*size)
	r.FillBytes(signature[:size])
	s.FillBytes(signature[size:])
	return signed + "." + b64url(signature)
}

// toJSON encodes v, unless it is JSON already.
func toJSON(t testing.TB, v any) []byte {
	t.Helper()
	if raw, ok := v.(string); ok {
		return []byte(raw)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
