package hmachook

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

func (c *checker) publicKeys(cfg Config) (keys []crypto.PublicKey) {
	if len(cfg.PublicKeys) == 0 {
		return nil
	}
	if len(cfg.Secrets) > 0 {
		c.refuse("Secrets and Config.PublicKeys are both set: set the one that the sender's signatures are made with")
	}
	if cfg.Hash != SHA256 {
		c.refuse("Hash has no effect with PublicKeys: leave it out")
	}
	if cfg.SecretEncoding != Plain {
		c.refuse("SecretEncoding has no effect with PublicKeys: leave it out")
	}
	for i, s := range cfg.PublicKeys {
		key, err := parsePublicKey(s)
		if err != nil {
			c.refuse("PublicKeys[%d] %w", i, err)
		}
		keys = append(keys, key)
	}
	return keys
}

// parsePublicKey does not show s in its error: it may be a private key or a secret.
func parsePublicKey(s string) (crypto.PublicKey, error) {
	if strings.Contains(s, "PRIVATE KEY") {
		return nil, errors.New("is a private key, which only the sender may have: copy the public key")
	}
	if strings.TrimSpace(s) == "" {
		return nil, errors.New("is empty: copy the endpoint's public key from the sender")
	}
	der, err := hex.DecodeString(s)
	if block, rest := pem.Decode([]byte(s)); block != nil && block.Type == "PUBLIC KEY" &&
		strings.TrimSpace(string(rest)) == "" {
		der, err = block.Bytes, nil
	} else if err != nil {
		der, err = strict.Base64(base64.StdEncoding, s)
	}
	if err != nil {
		return nil, errors.New("is neither PEM, base64 nor hexadecimal: copy the endpoint's public key from the sender, without white space around it")
	}
	var key any = ed25519.PublicKey(der)
	if len(der) != ed25519.PublicKeySize {
		if key, err = x509.ParsePKIXPublicKey(der); err != nil {
			return nil, errors.New("is no public key: want a SubjectPublicKeyInfo in PEM or base64, or the 32 bytes of an Ed25519 key")
		}
	}
	switch key := key.(type) {
	case ed25519.PublicKey:
		if strict.LowOrder(key) {
			return nil, errors.New("is a point of low order: anybody could make its signatures; copy the endpoint's public key")
		}
		return key, nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("is an ECDSA key on %s: want one on P-256", key.Curve.Params().Name)
		}
		return key, nil
	default:
		return nil, fmt.Errorf("is a %T: want an ECDSA key on P-256, or an Ed25519 key", key)
	}
}

// The sizes of an ECDSA signature in ASN.1 form.
const minECDSA, maxECDSA = 8, 72

// possible reports whether a signature of n bytes can be one of a configured key.
func (p *plan) possible(n int) bool {
	for _, key := range p.public {
		if _, ok := key.(ed25519.PublicKey); ok && n == ed25519.SignatureSize || !ok && n >= minECDSA && n <= maxECDSA {
			return true
		}
	}
	return p.public == nil && n == p.newHash()().Size()
}

// authentic reports whether a configured key made one of the signatures. The key decides the algorithm, not the
// delivery.
func (p *plan) authentic(text []byte, signatures [][]byte) bool {
	if p.public == nil {
		return strict.Signed(p.newHash(), p.keys, [][]byte{text}, signatures)
	}
	hash := sha256.Sum256(text)
	for _, signature := range signatures {
		for _, key := range p.public {
			switch key := key.(type) {
			case ed25519.PublicKey:
				if len(signature) == ed25519.SignatureSize && ed25519.Verify(key, text, signature) {
					return true
				}
			case *ecdsa.PublicKey:
				if ecdsa.VerifyASN1(key, hash[:], signature) {
					return true
				}
			}
		}
	}
	return false
}

// sign returns what authentic accepts. key is nil for the first of Secrets.
func (p *plan) sign(key crypto.Signer, text []byte) ([]byte, error) {
	switch {
	case key == nil && p.public == nil:
		return strict.MAC(p.newHash(), p.keys[0], text), nil
	case key == nil:
		return nil, errors.New("hmachook: SignTo needs the private key of one of Config.PublicKeys")
	case p.public == nil:
		return nil, errors.New("hmachook: SignTo has a private key, and Config has Secrets: want nil as the key")
	}
	switch public := key.Public().(type) {
	case ed25519.PublicKey:
		return key.Sign(nil, text, crypto.Hash(0))
	case *ecdsa.PublicKey:
		hash := sha256.Sum256(text)
		return key.Sign(nil, hash[:], crypto.SHA256)
	default:
		return nil, fmt.Errorf("hmachook: SignTo has a %T: want an ECDSA or Ed25519 key", public)
	}
}
