package applehook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	ocspTimeout   = 10 * time.Second
	ocspFailedFor = 10 * time.Second // how long nobody is asked again after a failure
	ocspLife      = 15 * time.Minute // how long an answer is used
	ocspPairs     = 32               // how many answers are kept
	maxOCSPBytes  = 64 << 10
)

// revocation asks the authorities whether certificates are revoked. It remembers which are not.
type revocation struct {
	client *http.Client

	mu      sync.Mutex
	good    map[pair]time.Time // when the authorities were asked
	failed  map[pair]failure   // the last inquiry
	running map[pair]*inquiry
}

type failure struct {
	err   error
	until time.Time
}

// inquiry is a question that several deliveries wait for. err is written before done is closed.
type inquiry struct {
	done chan struct{}
	err  error
}

func newRevocation(client *http.Client) *revocation {
	own := http.Client{}
	if client != nil {
		own = *client
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &revocation{client: &own, good: make(map[pair]time.Time), failed: make(map[pair]failure), running: make(map[pair]*inquiry)}
}

// check returns nil if neither leaf nor intermediate is revoked. An error that is not errRevoked may pass. Only one inquiry about a pair
// runs at a time, and all deliveries wait for it, each until its ctx ends.
func (r *revocation) check(ctx context.Context, chain []*x509.Certificate, now time.Time) error {
	q, err := r.inquire(ctx, chain, now)
	if q == nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-q.done:
		return q.err
	}
}

// inquire returns an inquiry about chain, or nil and a known answer.
func (r *revocation) inquire(ctx context.Context, chain []*x509.Certificate, now time.Time) (*inquiry, error) {
	key := pairOf(chain[0], chain[1])
	r.mu.Lock()
	defer r.mu.Unlock()
	if asked, ok := r.good[key]; ok && now.Sub(asked).Abs() < ocspLife {
		return nil, nil
	}
	if q, ok := r.running[key]; ok {
		return q, nil
	}
	if f, ok := r.failed[key]; ok && time.Now().Before(f.until) {
		return nil, fmt.Errorf("not asked again so soon: %w", f.err)
	}
	q := &inquiry{done: make(chan struct{}), err: errors.New("the OCSP request was abandoned")}
	r.running[key] = q
	// The answer is for all that wait, so it does not end with the request of one of them.
	go r.run(context.WithoutCancel(ctx), q, key, chain, now)
	return q, nil
}

// run asks, and wakes those that wait for q.
func (r *revocation) run(ctx context.Context, q *inquiry, key pair, chain []*x509.Certificate, now time.Time) {
	defer func() {
		if v := recover(); v != nil { // in Config.HTTPClient
			q.err = fmt.Errorf("the OCSP request panicked: %v", v)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, key)
		ended := time.Now()
		maps.DeleteFunc(r.failed, func(_ pair, f failure) bool { return !ended.Before(f.until) })
		if q.err == nil {
			r.keep(key, now)
		} else {
			r.failed[key] = failure{err: q.err, until: ended.Add(ocspFailedFor)}
		}
		close(q.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, ocspTimeout)
	defer cancel()
	if q.err = r.ask(ctx, chain[1], chain[2], now); q.err == nil {
		q.err = r.ask(ctx, chain[0], chain[1], now)
	}
}

// keep remembers an answer, and forgets the oldest one if there are too many. The caller holds mu.
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
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the OCSP responder answers with status %s", resp.Status)
	}
	der, err := io.ReadAll(io.LimitReader(resp.Body, maxOCSPBytes+1))
	if err == nil && len(der) > maxOCSPBytes {
		err = fmt.Errorf("the OCSP response has more than %d bytes", maxOCSPBytes)
	}
	return der, err
}
