package applehook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/fetch"
)

const (
	ocspTimeout   = 10 * time.Second
	ocspFailedFor = 10 * time.Second // how long no request is sent again after a failure
	ocspLife      = 15 * time.Minute // how long an answer is used
	ocspPairs     = 32               // how many answers are kept
	maxOCSPBytes  = 64 << 10
)

// revocation asks the authorities whether certificates are revoked. It remembers which are not.
type revocation struct {
	client    *http.Client
	inquiries fetch.Shared[pair, struct{}]
	good      map[pair]time.Time // when the authorities were asked; guarded by inquiries
}

func newRevocation(client *http.Client) *revocation {
	own := http.Client{}
	if client != nil {
		own = *client
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &revocation{
		client: &own, good: make(map[pair]time.Time),
		inquiries: fetch.Shared[pair, struct{}]{FailedFor: ocspFailedFor},
	}
}

// check returns nil if neither leaf nor intermediate is revoked. An error that is not errRevoked may pass. Only one
// inquiry about a pair runs at a time, and all deliveries wait for it, each until its ctx ends.
func (r *revocation) check(ctx context.Context, chain []*x509.Certificate, now time.Time) error {
	key := pairOf(chain[0], chain[1])
	_, err := r.inquiries.Get(ctx, key, fetch.Request[struct{}]{
		Known: func() (known struct{}, found bool) {
			asked, found := r.good[key]
			return known, found && now.Sub(asked).Abs() < ocspLife
		},
		Do: func(ctx context.Context) (answer struct{}, err error) {
			ctx, cancel := context.WithTimeout(ctx, ocspTimeout)
			defer cancel()
			if err = r.ask(ctx, chain[1], chain[2], now); err == nil {
				err = r.ask(ctx, chain[0], chain[1], now)
			}
			return answer, err
		},
		Keep: func(struct{}) { r.keep(key, now) },
	})
	return err
}

// keep remembers an answer, and forgets the oldest one if there are too many.
func (r *revocation) keep(key pair, now time.Time) {
	r.good[key] = now
	if len(r.good) <= ocspPairs {
		return
	}
	oldest, at := key, now
	for k, asked := range r.good {
		if k != key && !asked.After(at) {
			oldest, at = k, asked
		}
	}
	delete(r.good, oldest)
}

// ask asks the responders of cert, in turn, until one answers.
func (r *revocation) ask(ctx context.Context, cert, issuer *x509.Certificate, now time.Time) error {
	req, err := newOCSPRequest(cert, issuer)
	if err != nil {
		return err
	}
	failed := errors.New("the certificate names no OCSP responder")
	for _, url := range cert.OCSPServer {
		der, err := r.post(ctx, url, req)
		if err == nil {
			err = checkOCSPResponse(der, cert, issuer, now)
		}
		if err == nil || errors.Is(err, errRevoked) {
			return err
		}
		failed = fmt.Errorf("%s: %w", url, err)
	}
	return failed
}

func (r *revocation) post(ctx context.Context, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/ocsp-request")
	return fetch.Body(r.client, req, maxOCSPBytes)
}
