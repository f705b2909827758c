package appletest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"time"
)

// Authority signs as the App Store does, with certificates that no program trusts by default. It is safe for concurrent
// use.
type Authority struct {
	root *x509.Certificate
	x5c  [3][]byte
	key  *ecdsa.PrivateKey // of the leaf
}

// NewAuthority makes new keys and certificates. They are valid from 1990 to 2090, so that tests can use any clock.
func NewAuthority() (*Authority, error) {
	a := &Authority{}
	var parent *x509.Certificate
	var parentKey *ecdsa.PrivateKey
	for i, c := range []struct {
		name  string
		curve elliptic.Curve
		mark  asn1.ObjectIdentifier
	}{
		{"appletest root", elliptic.P384(), nil},
		{"appletest intermediate", elliptic.P384(), asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}},
		{"appletest leaf", elliptic.P256(), asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}},
	} {
		key, err := ecdsa.GenerateKey(c.curve, rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("appletest: %w", err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: c.name},
			NotBefore: time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2090, 1, 1, 0, 0, 0, 0,
				time.UTC),
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		}
		if i < 2 {
			template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
		}
		if c.mark != nil {
			template.ExtraExtensions = []pkix.Extension{{Id: c.mark, Value: asn1.NullBytes}}
		}
		if parent == nil {
			parent, parentKey = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
		if err != nil {
			return nil, fmt.Errorf("appletest: %w", err)
		}
		if parent, err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("appletest: %w", err)
		}
		if i == 0 {
			a.root = parent
		}
		a.x5c[2-i], parentKey, a.key = der, key, key
	}
	return a, nil
}

// Roots is for applehook.Config.Roots.
func (a *Authority) Roots() []*x509.Certificate { return []*x509.Certificate{a.root} }

// Sign returns the JWS of payload, which is encoded as JSON. A json.RawMessage is signed as it is.
func (a *Authority) Sign(payload any) (string, error) {
	content, raw := payload.(json.RawMessage)
	if !raw {
		var err error
		if content, err = json.Marshal(payload); err != nil {
			return "", fmt.Errorf("appletest: %w", err)
		}
	}
	header, err := json.Marshal(map[string]any{"alg": "ES256", "x5c": a.x5c[:]}) // []byte becomes padded base64
	if err != nil {
		return "", fmt.Errorf("appletest: %w", err)
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(content)
	hash := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, a.key, hash[:])
	if err != nil {
		return "", fmt.Errorf("appletest: %w", err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
