package applehook_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"
)

// The parts of RFC 6960 that a responder needs.
type (
	certID struct {
		Algorithm         pkix.AlgorithmIdentifier
		NameHash, KeyHash []byte
		Serial            *big.Int
	}
	single struct {
		CertID certID
		Status asn1.RawValue
		This   time.Time        `asn1:"generalized"`
		Next   time.Time        `asn1:"generalized,explicit,tag:0,optional,omitempty"`
		Extra  []pkix.Extension `asn1:"explicit,tag:1,optional,omitempty"`
	}
	tbsResponse struct {
		Responder asn1.RawValue
		Produced  time.Time `asn1:"generalized"`
		Responses []single
		Extra     []pkix.Extension `asn1:"explicit,tag:1,optional,omitempty"`
	}
)

var (
	good    = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0}
	unknown = asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 2}
)

func revokedAt(t testing.TB, at time.Time) asn1.RawValue {
	return asn1.RawValue{
		Class: asn1.ClassContextSpecific, Tag: 1, IsCompound: true,
		Bytes: must(t)(asn1.MarshalWithParams(at, "generalized")),
	}
}

func must(t testing.TB) func(der []byte, err error) []byte {
	return func(der []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
}

// responder is an OCSP responder, as the transport of a client. Its fields may be changed between requests.
type responder struct {
	testing.TB

	mu       sync.Mutex
	requests []string // their URLs

	down   bool
	status int             // of HTTP; 0: 200
	answer asn1.Enumerated // the response's status
	certs  []*issued       // sent with the response
	raw    []byte          // sent instead of a response
	by     func(url string) crypto.Signer
	change func(*tbsResponse)
	record func(response, signed []byte)
	wait   chan struct{} // if not nil, requests wait until it is closed
}

func (r *responder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

func (r *responder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+req.URL.String()+" "+req.Header.Get("Content-Type"))
	r.mu.Unlock()
	if r.wait != nil {
		select {
		case <-r.wait:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if r.down {
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	der := r.raw
	if der == nil {
		der = r.respond(body, req.URL.String())
	}
	return &http.Response{
		StatusCode: max(r.status, 200), Status: http.StatusText(max(r.status, 200)),
		Body: io.NopCloser(bytes.NewReader(der)), Header: http.Header{"Location": {"http://elsewhere.example"}},
	}, nil
}

func (r *responder) respond(request []byte, url string) []byte {
	var req struct {
		TBS struct{ List []struct{ CertID certID } }
	}
	if rest, err := asn1.Unmarshal(request, &req); err != nil || len(rest) > 0 || len(req.TBS.List) != 1 {
		r.Errorf("the request cannot be read: %v, %d bytes left", err, len(rest))
		return nil
	}
	tbs := tbsResponse{
		Responder: asn1.RawValue{
			Class: asn1.ClassContextSpecific, Tag: 2, IsCompound: true,
			Bytes: must(r)(asn1.Marshal(make([]byte, 20))),
		},
		Produced:  received,
		Responses: []single{{CertID: req.TBS.List[0].CertID, Status: good, This: received.Add(-time.Hour), Next: received.Add(time.Hour)}},
	}
	if r.change != nil {
		r.change(&tbs)
	}
	content := must(r)(asn1.Marshal(tbs))
	hash := sha256.Sum256(content)
	signature := must(r)(ecdsa.SignASN1(rand.Reader, r.by(url).(*ecdsa.PrivateKey), hash[:]))
	var certs []asn1.RawValue
	for _, c := range r.certs {
		certs = append(certs, asn1.RawValue{FullBytes: c.Raw})
	}
	basic := must(r)(asn1.Marshal(struct {
		TBS       asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
		Certs     []asn1.RawValue `asn1:"explicit,tag:0,optional,omitempty"`
	}{asn1.RawValue{FullBytes: content}, pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}}, asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}, certs}))
	type responseBytes struct {
		Type  asn1.ObjectIdentifier
		Basic []byte
	}
	response := must(r)(asn1.Marshal(struct {
		Status asn1.Enumerated
		Bytes  responseBytes `asn1:"explicit,tag:0"`
	}{r.answer, responseBytes{asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}, basic}}))
	if r.record != nil {
		r.record(response, content)
	}
	return response
}
