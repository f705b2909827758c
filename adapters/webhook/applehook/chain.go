package applehook

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Apple marks the certificates of the App Store with these extensions. Without this check, any developer could sign notifications,
// because the same root is above the certificates that Apple issues to developers.
var (
	markLeaf         = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 11, 1}
	markIntermediate = asn1.ObjectIdentifier{1, 2, 840, 113635, 100, 6, 2, 1}
)

// certificates parses the leaf and the intermediate. The third certificate is never used, because the sender chooses it.
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
	switch {
	case leaf.IsCA:
		return nil, errors.New("the leaf certificate is one of an authority")
	case !intermediate.BasicConstraintsValid || !intermediate.IsCA:
		return nil, errors.New("the intermediate certificate is not one of an authority")
	case !marked(leaf, markLeaf):
		return nil, fmt.Errorf("the leaf certificate lacks Apple's extension %v", markLeaf)
	case !marked(intermediate, markIntermediate):
		return nil, fmt.Errorf("the intermediate certificate lacks Apple's extension %v", markIntermediate)
	}
	between := x509.NewCertPool()
	between.AddCert(intermediate)
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots:         v.roots, // never nil, which would mean the roots of the system
		Intermediates: between,
		CurrentTime:   at,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // the default is the usage of TLS servers
	})
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

func marked(cert *x509.Certificate, mark asn1.ObjectIdentifier) bool {
	return slices.ContainsFunc(cert.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(mark) })
}
