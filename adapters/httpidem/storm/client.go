package storm

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// answer is one that a client got.
type answer struct {
	status     int
	content    [sha256.Size]byte // of the body
	replayed   bool
	retryAfter time.Duration
	took       time.Duration
}

// final reports whether a client takes the answer as the last word.
func (a answer) final() bool {
	return a.status < 500 && !slices.Contains([]int{
		http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
	}, a.status)
}

func (a answer) ok() bool { return a.status >= 200 && a.status < 300 }

// mostBody is how much of an answer is compared.
const mostBody = 16 << 20

var errCut = errors.New("cut on purpose")

// client sends one request until it gets a final answer.
func (s *storm) client(ctx context.Context, key, body string) (last answer, ok bool) {
	for n := 1; n <= s.cfg.Tries; n++ {
		cut := n < s.cfg.Tries && rand.Float64() < s.cfg.Cuts
		a, err := s.try(ctx, key, body, n > 1, cut)
		s.seen.add(a, err)
		switch {
		case ctx.Err() != nil:
			return a, false
		case err == nil && a.final():
			return a, true
		case n == s.cfg.Tries:
			return a, false
		}
		if sleep(ctx, s.cfg.wait(n, a.retryAfter)) != nil {
			return a, false
		}
	}
	return last, false
}

// try sends a request once. Half of those that are cut end while the server works, and of the others the answer is
// thrown away.
func (s *storm) try(ctx context.Context, key, body string, retry, cut bool) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.TryTimeout)
	defer cancel()
	if cut && rand.N(2) == 0 {
		defer time.AfterFunc(rand.N(s.cfg.CutWithin+1), cancel).Stop()
	}
	r, err := http.NewRequestWithContext(ctx, s.cfg.Method, s.cfg.URL, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	// or net/http itself repeats requests that have an Idempotency-Key, and they would not be counted
	r.GetBody = nil
	r.Header = s.cfg.Headers.Clone()
	r.Header.Set(s.cfg.Header, key)
	began := time.Now()
	s.seen.start(began, retry)
	res, err := s.cfg.Transport.RoundTrip(r)
	if err == nil {
		a, err = read(res)
	}
	if cut {
		return answer{}, errCut
	}
	a.took = time.Since(began)
	return a, err
}

func read(res *http.Response) (a answer, err error) {
	defer res.Body.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(res.Body, mostBody)); err != nil {
		return a, err
	}
	a.status, a.replayed = res.StatusCode, res.Header.Get("Idempotent-Replayed") == "true"
	hash.Sum(a.content[:0])
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.retryAfter = time.Duration(seconds) * time.Second
	}
	return a, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
