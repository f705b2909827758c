package snshook

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/fetch"
	"github.com/txonce/txonce/internal/tokens"
)

// These limits bound the work that a forged message causes.
const (
	maxCertificates = 16
	maxBytes        = 64 << 10
	fetchTimeout    = 5 * time.Second
	failedFor       = 10 * time.Second
	fetchBurst      = 8
	fetchPerMinute  = 12

	minKey, maxKey = 2048, 8192 // bits
)

// certificates fetches and keeps the certificates of SNS. A certificate never changes under its URL, which contains a
// hash, so it is kept until others take its place.
type certificates struct {
	client  *http.Client
	fetches fetch.Shared[string, *x509.Certificate]

	// Guarded by fetches.
	known  map[string]*x509.Certificate
	order  []string      // the URLs of known, the oldest first
	bucket tokens.Bucket // only fetches that fail cost a token
}

func newCertificates(transport http.RoundTripper) *certificates {
	return &certificates{
		client: &http.Client{
			Transport:     transport,
			Timeout:       fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		fetches: fetch.Shared[string, *x509.Certificate]{FailedFor: failedFor},
		known:   map[string]*x509.Certificate{},
		bucket:  tokens.NewBucket(tokens.Limit{Burst: fetchBurst, PerMinute: fetchPerMinute}),
	}
}

// key returns the public key of the certificate at url, which must be valid at now.
func (c *certificates) key(ctx context.Context, url string, now time.Time) (*rsa.PublicKey, error) {
	cert, err := c.certificate(ctx, url)
	if err != nil {
		return nil, err
	}
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return nil, fmt.Errorf("it is valid from %v to %v, and the clock says %v", cert.NotBefore, cert.NotAfter, now)
	}
	return cert.PublicKey.(*rsa.PublicKey), nil
}

// certificate returns a known certificate, or waits until it was fetched. One fetch is for all that need the
// certificate, and each of them waits until its ctx ends.
func (c *certificates) certificate(ctx context.Context, url string) (*x509.Certificate, error) {
	return c.fetches.Get(ctx, url, fetch.Request[*x509.Certificate]{
		Known: func() (*x509.Certificate, bool) { cert := c.known[url]; return cert, cert != nil },
		Allow: func() error {
			if c.bucket.Refill(time.Now()); !c.bucket.Take() {
				return errors.New("not fetched: too many others could not be fetched, so there may be an attack with forged messages")
			}
			return nil
		},
		// the client's timeout ends it
		Do:   func(ctx context.Context) (*x509.Certificate, error) { return c.fetch(ctx, url) },
		Keep: func(cert *x509.Certificate) { c.keep(url, cert) },
	})
}

// keep remembers a certificate, and forgets the oldest one if there are too many.
func (c *certificates) keep(url string, cert *x509.Certificate) {
	c.bucket.GiveBack(1)
	if len(c.order) == maxCertificates {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	c.known[url] = cert
	c.order = append(c.order, url)
}

func (c *certificates) fetch(ctx context.Context, url string) (*x509.Certificate, error) {
	body, err := get(ctx, c.client, url)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(body)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("the response is not a certificate in PEM form")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, fmt.Errorf("its key is a %T: want RSA", cert.PublicKey)
	}
	if bits := key.N.BitLen(); bits < minKey || bits > maxKey {
		return nil, fmt.Errorf("its key has %d bits: want %d to %d", bits, minKey, maxKey)
	}
	return cert, nil
}

// get returns the body of a response with status 200. client follows no redirects.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return fetch.Body(client, req, maxBytes)
}
