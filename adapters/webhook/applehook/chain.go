package applehook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Apple marks the certificates of the App Store with these extensions. Without this check, any developer could sign
// notifications, because the same root is above the certificates that Apple issues to developers.
var (
	markLeaf         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	markIntermediate = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

// certificates parses the leaf and the intermediate. The third certificate is never used, because the sender chooses
// it.
func (j *jws) certificates() (leaf, intermediate *x509.Certificate, err error) {
	if leaf, err = x509.ParseCertificate(j.x5c[0]); err != nil {
		return nil, nil, fmt.Errorf("x5c[0]: %w", err)
	}
	if intermediate, err = x509.ParseCertificate(j.x5c[1]); err != nil {
		return nil, nil, fmt.Errorf("x5c[1]: %w", err)
	}
	return leaf, intermediate, nil
}

// verifyChain returns leaf, intermediate and root, if all are valid at the time at.
func (v *Verifier) verifyChain(leaf, intermediate *x509.Certificate, at time.Time) ([]*x509.Certificate, error) {
	key := pairOf(leaf, intermediate)
	if chain := v.chains.find(key, at); chain != nil {
		return chain, nil
	}
	chain, err := v.buildChain(leaf, intermediate, at)
	if err == nil {
		v.chains.keep(key, chain)
	}
	return chain, err
}

// buildChain uses the key of a certificate only after it has verified who issued that certificate. Anybody can send a
// certificate with a key so large that one signature takes minutes to check.
func (v *Verifier) buildChain(leaf, intermediate *x509.Certificate, at time.Time) ([]*x509.Certificate, error) {
	switch {
	case leaf.IsCA:
		return nil, errors.New("the leaf certificate is one of an authority")
	case !intermediate.BasicConstraintsValid || !intermediate.IsCA:
		return nil, errors.New("the intermediate certificate is not one of an authority")
	case !marked(leaf, markLeaf):
		return nil, fmt.Errorf("the leaf certificate lacks Apple's extension %v", markLeaf)
	case !marked(intermediate, markIntermediate):
		return nil, fmt.Errorf("the intermediate certificate lacks Apple's extension %v", markIntermediate)
	case !smallKey(intermediate):
		return nil, errors.New("the intermediate certificate has no ECDSA key on P-256 or P-384")
	}
	options := x509.VerifyOptions{
		Roots:       v.roots, // never nil, which would mean the roots of the system
		CurrentTime: at,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // the default is the usage of TLS servers
	}
	if _, err := intermediate.Verify(options); err != nil {
		return nil, err
	}
	options.Intermediates = x509.NewCertPool()
	options.Intermediates.AddCert(intermediate)
	chains, err := leaf.Verify(options)
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		if len(chain) == 3 && chain[1].Equal(intermediate) {
			return chain, nil
		}
	}
	return nil, errors.New("the chain of certificates does not have the length 3")
}

func smallKey(cert *x509.Certificate) bool {
	key, ok := cert.PublicKey.(*ecdsa.PublicKey)
	return ok && (key.Curve == elliptic.P256() || key.Curve == elliptic.P384())
}

func marked(cert *x509.Certificate, mark asn1.ObjectIdentifier) bool {
	return slices.ContainsFunc(cert.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(mark) })
}

// chains remembers the chains that were verified, because a notification has three of them, and verifying one takes
// longer than all else. Only what Apple issued comes in, so a sender of forgeries cannot fill it.
type chains struct {
	mu    sync.Mutex
	known map[pair][]*x509.Certificate
}

// pair is the SHA-256 of a leaf certificate and of its intermediate certificate.
type pair [2][sha256.Size]byte

func pairOf(leaf, intermediate *x509.Certificate) pair {
	return pair{sha256.Sum256(leaf.Raw), sha256.Sum256(intermediate.Raw)}
}

// maxChains is many times the number that Apple uses at once.
const maxChains = 64

// find returns a chain that was verified, if all its certificates are valid at the time at. Nothing else in a chain
// depends on time.
func (c *chains) find(key pair, at time.Time) []*x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	chain := c.known[key]
	for _, cert := range chain {
		if at.Before(cert.NotBefore) || at.After(cert.NotAfter) {
			return nil
		}
	}
	return chain
}

func (c *chains) keep(key pair, chain []*x509.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxChains {
		c.known = make(map[pair][]*x509.Certificate)
	}
	c.known[key] = chain
}
