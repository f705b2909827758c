package applehook

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	ocspTimeout  = 10 * time.Second
	ocspLife     = 15 * time.Minute // how long an answer is used
	ocspPairs    = 32               // how many answers are kept
	maxOCSPBytes = 64 << 10
)

// revocation asks the authorities whether certificates are revoked. It remembers which are not.
type revocation struct {
	client *http.Client

	mu      sync.Mutex
	good    map[pair]time.Time // when the authorities were asked
	running map[pair]*inquiry
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
	return &revocation{client: &own, good: make(map[pair]time.Time), running: make(map[pair]*inquiry)}
}

// check returns nil if neither leaf nor intermediate is revoked. An error that is not errRevoked may pass. Only one delivery asks
// about a pair at a time, and the others wait for it.
func (r *revocation) check(ctx context.Context, chain []*x509.Certificate, now time.Time) error {
	key := pairOf(chain[0], chain[1])
	r.mu.Lock()
	if asked, ok := r.good[key]; ok && now.Sub(asked).Abs() < ocspLife {
		r.mu.Unlock()
		return nil
	}
	if other, ok := r.running[key]; ok {
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-other.done:
			return other.err
		}
	}
	mine := &inquiry{done: make(chan struct{}), err: errors.New("the OCSP request was abandoned")}
	r.running[key] = mine
	r.mu.Unlock()

	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, key)
		if mine.err == nil {
			r.keep(key, now)
		}
		close(mine.done)
	}()
	// The answer is for all that wait, so it does not end with the request of one of them.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ocspTimeout)
	defer cancel()
	if mine.err = r.ask(ctx, chain[1], chain[2], now); mine.err == nil {
		mine.err = r.ask(ctx, chain[0], chain[1], now)
	}
	return mine.err
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
