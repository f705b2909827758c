package applehook_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
)

// hugeKey is an RSA key whose owner does not know its private half. Its signatures are random bytes.
type hugeKey struct{ public rsa.PublicKey }

func newHugeKey(t testing.TB, size int) hugeKey {
	n := make([]byte, size)
	_, _ = rand.Read(n) // never fails
	n[0] |= 0x80
	n[size-1] |= 1
	return hugeKey{rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 1<<31 - 1}}
}

func (k hugeKey) Public() crypto.PublicKey { return &k.public }

func (k hugeKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	panic("x509.CreateCertificate would verify this signature, which takes minutes")
}

// signedByHuge returns cert with a forged signature by an intermediate that has the huge key.
func signedByHuge(t testing.TB, cert *issued, size int) *issued {
	t.Helper()
	signature := make([]byte, size)
	_, _ = rand.Read(signature[1:]) // less than the modulus
	var parts struct {
		TBS, Algorithm asn1.RawValue
		Signature      asn1.BitString
	}
	if _, err := asn1.Unmarshal(cert.Raw, &parts); err != nil {
		t.Fatal(err)
	}
	parts.Signature = asn1.BitString{Bytes: signature, BitLength: 8 * size}
	der, err := asn1.Marshal(parts)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{forged, cert.key}
}

// hugeChain is what a stranger sends: a leaf below an intermediate with an RSA modulus of size bytes.
func hugeChain(t testing.TB, size int, small *rsa.PrivateKey) chain {
	t.Helper()
	// so that the leaf names RSA as its algorithm
	c := newChain(t, func(_, intermediate *options) { intermediate.signer = small })
	public := newHugeKey(t, size)
	c.intermediate = issue(t, c.root, options{name: "intermediate", ca: true, signer: public, marks: []asn1.ObjectIdentifier{markIntermediate}})
	c.leaf = signedByHuge(t, c.leaf, size)
	return c
}

// TestForgedChainIsCheap: anybody can send certificates. The key in one must not be used before it is known to be
// small, and who issued it.
func TestForgedChainIsCheap(t *testing.T) {
	v := newVerifier(t, newChain(t))
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]string{
		512: "no ECDSA key", 4 << 10: "no ECDSA key", 16 << 10: "x5c[0] has", 60 << 10: "x5c[0] has",
	} {
		t.Run(fmt.Sprintf("an intermediate with a modulus of %d bytes", size), func(t *testing.T) {
			_, err := verify(t, v, body(t, hugeChain(t, size, small).sign(t, notification())))
			if webhook.RefusalOf(err) == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	t.Run("an intermediate on P-521", func(t *testing.T) {
		c := newChain(t, func(_, intermediate *options) { intermediate.curve = elliptic.P521() })
		if _, err := verify(t, newVerifier(t, c), body(t, c.sign(t, notification()))); err == nil ||
			!strings.Contains(err.Error(), "no ECDSA key on P-256 or P-384") {
			t.Error(err)
		}
	})
	t.Run("the root is asked about the intermediate first", func(t *testing.T) {
		c := newChain(t)
		// has the same names, so that only the key of the intermediate shows that it is another's
		c.leaf = newChain(t).leaf
		_, err := verify(t, v, body(t, c.sign(t, notification())))
		unknown, ok := errors.AsType[x509.UnknownAuthorityError](err)
		if !ok || !unknown.Cert.Equal(c.intermediate.Certificate) {
			t.Errorf("got %v, want an error about the intermediate, whose key verifies the leaf", err)
		}
	})
}

// BenchmarkForged measures the dearest notifications that a stranger can send.
func BenchmarkForged(b *testing.B) {
	v, c := newVerifier(b, newChain(b)), newChain(b)
	key := c.leaf.key.(*ecdsa.PrivateKey)
	fill := int(v.Source().MaxBody) * 3 / 4
	for name, jws := range map[string]string{
		"chain":              c.sign(b, notification()),
		"long payload":       c.sign(b, `{"x":"`+strings.Repeat("x", fill-8<<10)+`"}`),
		"many members":       c.sign(b, `{"x":[`+strings.Repeat("{},", fill/3-4<<10)+`0]}`),
		"many certificates":  signJWS(b, m{"alg": "ES256", "x5c": make([]string, fill/4)}, "{}", key),
		"names of long text": newChain(b, func(_, intermediate *options) { intermediate.name = strings.Repeat("x", 5_000) }).sign(b, notification()),
	} {
		b.Run(name, func(b *testing.B) {
			text := body(b, jws)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := verify(b, v, text); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}
