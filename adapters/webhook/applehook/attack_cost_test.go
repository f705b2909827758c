package applehook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
)

// hugeKeyBody is a notification of a stranger: Apple's markers, a leaf with a key of the stranger, and an intermediate whose RSA modulus
// has so many bytes. Nobody needs the private key of the intermediate: the leaf's signature is random.
func hugeKeyBody(t *testing.T, modulus int) []byte {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	attacker, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	must(err)
	n := make([]byte, modulus)
	_, err = rand.Read(n)
	must(err)
	n[0] |= 0x80
	n[modulus-1] |= 1
	mark := func(oid ...int) []pkix.Extension { return []pkix.Extension{{Id: oid, Value: []byte{5, 0}}} }
	from, until := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	inter := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "inter"}, NotBefore: from, NotAfter: until, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, ExtraExtensions: mark(1, 2, 840, 113635, 100, 6, 2, 1), SubjectKeyId: []byte{1},
	}
	interDER, err := x509.CreateCertificate(rand.Reader, inter, &x509.Certificate{Subject: pkix.Name{CommonName: "root"}},
		&rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 1<<31 - 1}, attacker)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: from, NotAfter: until,
		ExtraExtensions: mark(1, 2, 840, 113635, 100, 6, 11, 1), SignatureAlgorithm: x509.SHA256WithRSA,
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, &x509.Certificate{Subject: inter.Subject, SubjectKeyId: []byte{1}}, attacker.Public(), small)
	must(err)
	var parts struct {
		TBS       asn1.RawValue
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	_, err = asn1.Unmarshal(leafDER, &parts)
	must(err)
	forged := make([]byte, modulus) // less than n
	_, err = rand.Read(forged[1:])
	must(err)
	parts.Signature = asn1.BitString{Bytes: forged, BitLength: 8 * modulus}
	leafDER, err = asn1.Marshal(parts)
	must(err)

	header, err := json.Marshal(map[string]any{"alg": "ES256", "x5c": []string{
		base64.StdEncoding.EncodeToString(leafDER), base64.StdEncoding.EncodeToString(interDER), base64.StdEncoding.EncodeToString([]byte("root")),
	}})
	must(err)
	signedText := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{}`))
	hash := sha256.Sum256([]byte(signedText))
	r, s, err := ecdsa.Sign(rand.Reader, attacker, hash[:])
	must(err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return fmt.Appendf(nil, `{"signedPayload":%q}`, signedText+"."+base64.RawURLEncoding.EncodeToString(signature))
}

// TestAttackHugeKey: a stranger without any key of Apple must not be able to buy seconds of a core with one request.
func TestAttackHugeKey(t *testing.T) {
	v, err := applehook.New(applehook.Config{BundleID: "com.example.app", AppAppleID: 1, Environment: applehook.Production})
	if err != nil {
		t.Fatal(err)
	}
	for _, modulus := range []int{512, 4 << 10, 16 << 10, 32 << 10, 60 << 10} {
		body := hugeKeyBody(t, modulus)
		began := time.Now()
		_, err := v.Verify(t.Context(), &webhook.Delivery{Body: body, Time: began})
		took := time.Since(began)
		t.Logf("modulus %d bytes, body %d bytes: %v, %.100v", modulus, len(body), took, err)
		if err == nil || took > time.Second {
			t.Errorf("a forged notification of %d kB took %v of a core: %.100v", len(body)>>10, took, err)
			return
		}
	}
}
