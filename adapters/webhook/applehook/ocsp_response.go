package applehook

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// The Online Certificate Status Protocol, RFC 6960. Only the parts that are needed to ask about one certificate.

type ocspRequest struct {
	TBS struct {
		RequestList []struct{ CertID certID }
	}
}

type certID struct {
	HashAlgorithm pkix.AlgorithmIdentifier
	NameHash      []byte
	KeyHash       []byte
	Serial        *big.Int
}

type ocspResponse struct {
	Status asn1.Enumerated
	Bytes  struct {
		Type  asn1.ObjectIdentifier
		Basic []byte
	} `asn1:"explicit,tag:0,optional"`
}

type basicResponse struct {
	TBS          responseData
	Algorithm    pkix.AlgorithmIdentifier
	Signature    asn1.BitString
	Certificates []asn1.RawValue `asn1:"explicit,tag:0,optional"`
}

type responseData struct {
	Raw        asn1.RawContent
	Version    int `asn1:"optional,default:0,explicit,tag:0"`
	Responder  asn1.RawValue
	ProducedAt time.Time `asn1:"generalized"`
	Responses  []singleResponse
	Extensions []pkix.Extension `asn1:"explicit,tag:1,optional"`
}

type singleResponse struct {
	CertID     certID
	Good       asn1.Flag        `asn1:"tag:0,optional"`
	Revoked    revokedInfo      `asn1:"tag:1,optional"`
	Unknown    asn1.Flag        `asn1:"tag:2,optional"`
	ThisUpdate time.Time        `asn1:"generalized"`
	NextUpdate time.Time        `asn1:"generalized,explicit,tag:0,optional"`
	Extensions []pkix.Extension `asn1:"explicit,tag:1,optional"`
}

type revokedInfo struct {
	At     time.Time       `asn1:"generalized"`
	Reason asn1.Enumerated `asn1:"explicit,tag:0,optional"`
}

var (
	oidBasicResponse = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}

	// The hashes of a certID. They only identify a certificate.
	hashes = []struct {
		oid  asn1.ObjectIdentifier
		hash crypto.Hash
	}{
		{asn1.ObjectIdentifier{1, 3, 14, 3, 2, 26}, crypto.SHA1},
		{asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, crypto.SHA256},
	}

	signatureAlgorithms = []struct {
		oid       asn1.ObjectIdentifier
		algorithm x509.SignatureAlgorithm
	}{
		{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}, x509.ECDSAWithSHA256},
		{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 3}, x509.ECDSAWithSHA384},
		{asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 4}, x509.ECDSAWithSHA512},
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, x509.SHA256WithRSA},
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 12}, x509.SHA384WithRSA},
		{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 13}, x509.SHA512WithRSA},
	}
)

// newOCSPRequest returns the DER of a request about cert, which issuer issued.
func newOCSPRequest(cert, issuer *x509.Certificate) ([]byte, error) {
	sha256 := hashes[1]
	name, key, err := hashIssuer(issuer, sha256.hash)
	if err != nil {
		return nil, err
	}
	var req ocspRequest
	req.TBS.RequestList = []struct{ CertID certID }{{certID{
		HashAlgorithm: pkix.AlgorithmIdentifier{Algorithm: sha256.oid, Parameters: asn1.NullRawValue},
		NameHash:      name, KeyHash: key, Serial: cert.SerialNumber,
	}}}
	return asn1.Marshal(req)
}

func hashIssuer(issuer *x509.Certificate, hash crypto.Hash) (name, key []byte, err error) {
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(issuer.RawSubjectPublicKeyInfo, &info); err != nil {
		return nil, nil, fmt.Errorf("the issuer's key: %w", err)
	}
	h := hash.New()
	h.Write(issuer.RawSubject)
	name = h.Sum(nil)
	h.Reset()
	h.Write(info.Key.RightAlign())
	return name, h.Sum(nil), nil
}

// is reports whether id names cert.
func (id certID) is(cert, issuer *x509.Certificate) bool {
	for _, h := range hashes {
		if h.oid.Equal(id.HashAlgorithm.Algorithm) {
			name, key, err := hashIssuer(issuer, h.hash)
			return err == nil && bytes.Equal(name, id.NameHash) && bytes.Equal(key, id.KeyHash) && id.Serial != nil &&
				id.Serial.Cmp(cert.SerialNumber) == 0
		}
	}
	return false
}

// errRevoked is the only answer that proves that a certificate must not be used. All other errors may pass.
var errRevoked = errors.New("the certificate is revoked")

// checkOCSPResponse returns nil if der is the authority's statement that cert is good at now.
func checkOCSPResponse(der []byte, cert, issuer *x509.Certificate, now time.Time) error {
	basic, err := parseOCSPResponse(der)
	if err != nil {
		return err
	}
	if err := basic.verify(issuer, now); err != nil {
		return err
	}
	for _, r := range basic.TBS.Responses {
		if !r.CertID.is(cert, issuer) {
			continue
		}
		switch oldest := now.Add(-24 * time.Hour); { // without a next update
		case slices.ContainsFunc(r.Extensions, func(e pkix.Extension) bool { return e.Critical }):
			return errors.New("the OCSP response has an unknown critical extension")
		case !r.Revoked.At.IsZero():
			return fmt.Errorf("%w since %v", errRevoked, r.Revoked.At.UTC().Format(time.RFC3339))
		case r.ThisUpdate.After(now.Add(maxAhead)):
			return fmt.Errorf("the OCSP response is of %v, which is in the future", r.ThisUpdate)
		case !r.NextUpdate.IsZero() && r.NextUpdate.Before(now.Add(-maxAhead)), r.NextUpdate.IsZero() &&
			r.ThisUpdate.Before(oldest):
			return fmt.Errorf("the OCSP response is outdated: it is of %v", r.ThisUpdate)
		case !bool(r.Good) || bool(r.Unknown):
			return errors.New("the OCSP responder does not know the certificate")
		}
		return nil
	}
	return errors.New("the OCSP response is about another certificate")
}

func parseOCSPResponse(der []byte) (*basicResponse, error) {
	var outer ocspResponse
	if rest, err := asn1.Unmarshal(der, &outer); err != nil {
		return nil, fmt.Errorf("the OCSP response: %w", err)
	} else if len(rest) > 0 {
		return nil, errors.New("the OCSP response has trailing bytes")
	}
	if outer.Status != 0 {
		return nil, fmt.Errorf("the OCSP responder answers with status %d", outer.Status)
	}
	if !outer.Bytes.Type.Equal(oidBasicResponse) {
		return nil, fmt.Errorf("the OCSP response has the unknown type %v", outer.Bytes.Type)
	}
	var basic basicResponse
	if rest, err := asn1.Unmarshal(outer.Bytes.Basic, &basic); err != nil {
		return nil, fmt.Errorf("the OCSP response: %w", err)
	} else if len(rest) > 0 {
		return nil, errors.New("the OCSP response has trailing bytes")
	}
	if slices.ContainsFunc(basic.TBS.Extensions, func(e pkix.Extension) bool { return e.Critical }) {
		return nil, errors.New("the OCSP response has an unknown critical extension")
	}
	return &basic, nil
}

// verify returns nil if issuer signed b, or a responder that issuer appointed. It does not read the responder's name,
// because only the key decides.
func (b *basicResponse) verify(issuer *x509.Certificate, now time.Time) error {
	i := slices.IndexFunc(signatureAlgorithms, func(a struct {
		oid       asn1.ObjectIdentifier
		algorithm x509.SignatureAlgorithm
	},
	) bool {
		return a.oid.Equal(b.Algorithm.Algorithm)
	})
	if i < 0 {
		return fmt.Errorf("the OCSP response is signed with the unknown algorithm %v", b.Algorithm.Algorithm)
	}
	signers := []*x509.Certificate{issuer}
	for _, raw := range b.Certificates[:min(len(b.Certificates), 4)] {
		if responder, err := x509.ParseCertificate(raw.FullBytes); err == nil && appointed(responder, issuer, now) {
			signers = append(signers, responder)
		}
	}
	for _, signer := range signers {
		if signer.CheckSignature(signatureAlgorithms[i].algorithm, b.TBS.Raw, b.Signature.RightAlign()) == nil {
			return nil
		}
	}
	return errors.New("the OCSP response is not signed by the certificate's issuer")
}

// appointed reports whether issuer issued responder for signing OCSP responses.
func appointed(responder, issuer *x509.Certificate, now time.Time) bool {
	return slices.Contains(responder.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning) &&
		!now.Before(responder.NotBefore) && !now.After(responder.NotAfter) &&
		bytes.Equal(responder.RawIssuer, issuer.RawSubject) && responder.CheckSignatureFrom(issuer) == nil
}
