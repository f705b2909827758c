package snshook

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

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

// certificates fetches and keeps the certificates of SNS. A certificate never changes under its URL, which contains a hash, so it is
// kept until others take its place.
type certificates struct {
	client *http.Client

	mu       sync.Mutex // guards all below
	known    map[string]*x509.Certificate
	order    []string // the URLs of known, the oldest first
	failed   map[string]failure
	fetching map[string]*fetch
	bucket   tokens.Bucket // only fetches that fail cost a token
}

type failure struct {
	err   error
	until time.Time
}

// fetch is a request for a certificate. cert and err are written before done is closed.
type fetch struct {
	done chan struct{}
	cert *x509.Certificate
	err  error
}

func newCertificates(transport http.RoundTripper) *certificates {
	return &certificates{
		client: &http.Client{
			Transport:     transport,
			Timeout:       fetchTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		known:    map[string]*x509.Certificate{},
		failed:   map[string]failure{},
		fetching: map[string]*fetch{},
		bucket:   tokens.NewBucket(tokens.Limit{Burst: fetchBurst, PerMinute: fetchPerMinute}),
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

// certificate returns a known certificate, or waits until it was fetched. One fetch is for all that need the certificate, and each of them
// waits until its ctx ends.
func (c *certificates) certificate(ctx context.Context, url string) (*x509.Certificate, error) {
	cert, f, err := c.lookup(ctx, url)
	if f == nil {
		return cert, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.done:
		return f.cert, f.err
	}
}

// lookup returns a known certificate, or the fetch to wait for.
func (c *certificates) lookup(ctx context.Context, url string) (*x509.Certificate, *fetch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cert := c.known[url]; cert != nil {
		return cert, nil, nil
	}
	if f := c.fetching[url]; f != nil {
		return nil, f, nil
	}
	if failed, ok := c.failed[url]; ok && time.Now().Before(failed.until) {
		return nil, nil, fmt.Errorf("not fetched again so soon: %w", failed.err)
	}
	if c.bucket.Refill(time.Now()); !c.bucket.Take() {
		return nil, nil, errors.New("not fetched: too many others could not be fetched, so somebody may be sending forged messages")
	}
	f := &fetch{done: make(chan struct{}), err: errors.New("the fetch was abandoned")}
	c.fetching[url] = f
	// Not the caller's ctx alone: others wait for the same certificate. The client's timeout ends it.
	go c.run(context.WithoutCancel(ctx), url, f)
	return nil, f, nil
}

func (c *certificates) run(ctx context.Context, url string, f *fetch) {
	defer func() {
		if v := recover(); v != nil { // in Config.Transport
			f.cert, f.err = nil, fmt.Errorf("the transport panicked: %v", v)
		}
		c.settle(url, f)
	}()
	f.cert, f.err = c.fetch(ctx, url)
}

// settle keeps the result of own, and wakes those that wait for it.
func (c *certificates) settle(url string, own *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(own.done)
	delete(c.fetching, url)
	if own.err != nil {
		now := time.Now()
		maps.DeleteFunc(c.failed, func(_ string, f failure) bool { return !now.Before(f.until) })
		c.failed[url] = failure{err: own.err, until: now.Add(failedFor)}
		return
	}
	delete(c.failed, url)
	c.bucket.GiveBack(1)
	if len(c.order) == maxCertificates {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	c.known[url] = own.cert
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
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response is %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBytes {
		return nil, fmt.Errorf("the response has more than %d bytes", maxBytes)
	}
	return body, nil
}
