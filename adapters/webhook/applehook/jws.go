package applehook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// These limits bound the work that a forged notification causes.
const (
	maxBody        = 256 << 10
	maxJWS         = maxBody // of a JWS with its nested ones; Apple's have about 15 kB
	maxCertificate = 8 << 10 // of a certificate in base64; Apple's have less than 2 kB
)

// jws is a JSON Web Signature in compact form, as the App Store makes it. Nothing in it is proven.
type jws struct {
	signed    string    // what the signature covers: the first two parts, as they were sent
	payload   []byte    // the second part
	signature []byte    // r and s, 32 bytes each
	x5c       [3][]byte // the certificates: leaf, intermediate, root
}

// parseJWS reads the form of a JWS. The algorithm must be ES256: the header does not choose it. Keys and URLs in the
// header are ignored.
func parseJWS(compact string) (*jws, error) {
	if len(compact) > maxJWS {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(compact), maxJWS)
	}
	parts := strings.Split(compact, ".")
	if len(parts) != 3 {
		return nil, fmt.Errorf("it has %d parts, not 3", len(parts))
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = strict.Base64(base64.RawURLEncoding, part); err != nil {
			return nil, fmt.Errorf("part %d: %w", i+1, err)
		}
	}
	header, err := parseObject(decoded[0])
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	x5c, err := parseHeader(header)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if len(decoded[2]) != 64 {
		return nil, fmt.Errorf("the signature has %d bytes, not 64", len(decoded[2]))
	}
	return &jws{signed: parts[0] + "." + parts[1], payload: decoded[1], signature: decoded[2], x5c: x5c}, nil
}

// parseHeader returns the certificates.
func parseHeader(header object) (x5c [3][]byte, err error) {
	switch alg, err := header.text("alg"); {
	case err != nil:
		return x5c, err
	case alg != "ES256":
		return x5c, fmt.Errorf("alg is %.20q, not ES256", alg)
	}
	for _, name := range []string{"crit", "b64"} { // they would change what the signature covers
		if _, present := header[name]; present {
			return x5c, fmt.Errorf("%s is not supported", name)
		}
	}
	var certs []string
	if err := json.Unmarshal(header["x5c"], &certs); err != nil {
		return x5c, errors.New("x5c is not an array of strings")
	}
	if len(certs) != len(x5c) {
		return x5c, fmt.Errorf("x5c has %d certificates, not %d", len(certs), len(x5c))
	}
	for i, cert := range certs {
		if len(cert) > maxCertificate {
			return x5c, fmt.Errorf("x5c[%d] has %d bytes, more than %d", i, len(cert), maxCertificate)
		}
		if x5c[i], err = strict.Base64(base64.StdEncoding, cert); err != nil {
			return x5c, fmt.Errorf("x5c[%d]: %w", i, err)
		}
	}
	return x5c, nil
}

// signedBy reports whether the key of leaf made the signature. It does not say who owns that key.
func (j *jws) signedBy(leaf *x509.Certificate) error {
	key, ok := leaf.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return errors.New("the leaf certificate has no ECDSA key on P-256")
	}
	hash := sha256.Sum256([]byte(j.signed))
	r, s := new(big.Int).SetBytes(j.signature[:32]), new(big.Int).SetBytes(j.signature[32:])
	if !ecdsa.Verify(key, hash[:], r, s) {
		return errors.New("the signature is wrong")
	}
	return nil
}
