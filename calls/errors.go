package calls

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/outbox"
)

// ErrMismatch says that a call has the ID of another call with other content. The idempotency key would be the same, so
// it is parked and never made.
var ErrMismatch = errors.New("calls: the ID was used for a call with other content")

// retryError is the error of RetryAfter.
type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// RetryAfter says that the call has not happened, and that no call of this Name is tried for that time; 0: the relay
// decides. No attempt is counted. It is for answers such as 429 Too Many Requests. err must not be nil.
func RetryAfter(err error, d time.Duration) error { return &retryError{err, max(0, d)} }

// maxRetryAfter limits how long an answer can stop all calls.
const maxRetryAfter = 10 * time.Minute

// ErrorOf returns the error of Do for an HTTP response. It reads no body, and closes none.
//
//	2xx                                  nil
//	408, 409, 425, other 5xx, 1xx, 3xx   the outcome is not known: with a known key, 409 says that the first request still runs
//	401, 407                             RetryAfter: the credentials are wrong, and not the call
//	429                                  RetryAfter, with the header Retry-After
//	503 with Retry-After                 the outcome is not known; an *outbox.UnavailableError
//	other 4xx                            outbox.Permanent: refused
//
// The answer to a request that a redirect has turned into a GET, as http.Client does by itself, says nothing about the
// call: the outcome is not known, whatever the status is.
func ErrorOf(r *http.Response) error {
	err := fmt.Errorf("HTTP status %d %s", r.StatusCode, http.StatusText(r.StatusCode))
	after := retryAfter(r.Header.Get("Retry-After"))
	if from, to, turned := redirected(r); turned {
		return fmt.Errorf("a redirect turned the %s into a %s: %w", from, to, err)
	}
	switch code := r.StatusCode; {
	case code >= 200 && code < 300:
		return nil
	case code == http.StatusTooManyRequests, code == http.StatusUnauthorized, code == http.StatusProxyAuthRequired:
		return RetryAfter(err, after)
	case code == http.StatusServiceUnavailable && after > 0:
		return &outbox.UnavailableError{After: after, Err: err}
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly:
		return err
	case code >= 400 && code < 500:
		return outbox.Permanent(err)
	}
	return err
}

// redirected returns the method of the first request and that of the last one, if they differ.
func redirected(r *http.Response) (from, to string, turned bool) {
	last := r.Request
	if last == nil {
		return "", "", false
	}
	first := last
	for first.Response != nil && first.Response.Request != nil {
		first = first.Response.Request
	}
	return first.Method, last.Method, first.Method != last.Method
}

// retryAfter reads the header's seconds or date; 0: it has none.
func retryAfter(header string) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseUint(header, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(0, time.Until(at)), maxRetryAfter)
	}
	return 0
}
