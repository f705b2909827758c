package webhook

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// The bodies of responses that are no Reply. They tell a stranger nothing about why.
const (
	bodyRefused = "refused\n"
	bodyRetry   = "try again later\n"
	bodyError   = "internal error\n"
)

// Limits of Retry-After. With a longer one, a sender that obeys it might give up before it tries again.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 10 * time.Minute
)

// response is the answer to a request, and what the log and the Trace say about it.
type response struct {
	status      int
	contentType string // empty: plain text
	body        string
	header      http.Header
	retryAfter  time.Duration // of a 503

	refusal Refusal // why the delivery was refused; empty: it was not
	err     error   // what went wrong; nil: nothing, or it is logged elsewhere
}

func refusal(status int, why Refusal, err error) *response {
	return &response{status: status, body: bodyRefused, refusal: why, err: err}
}

// with adds a header.
func (res *response) with(name, value string) *response {
	if res.header == nil {
		res.header = http.Header{}
	}
	res.header.Set(name, value)
	return res
}

// later asks the sender to deliver again.
func later(after time.Duration, err error) *response {
	return &response{status: http.StatusServiceUnavailable, body: bodyRetry, retryAfter: min(max(after, minRetryAfter),
		maxRetryAfter), err: err}
}

func failed(err error) *response {
	return &response{status: http.StatusInternalServerError, body: bodyError, err: err}
}

func accepted(reply Reply) *response {
	res := &response{status: reply.Status, contentType: reply.ContentType, body: string(reply.Body)}
	res.status = cmp.Or(res.status, http.StatusOK)
	return res
}

func (res *response) write(w http.ResponseWriter) {
	header := w.Header()
	maps.Copy(header, res.header)
	if res.retryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64((res.retryAfter+time.Second-1)/time.Second), 10))
	}
	if res.body == "" || res.status == http.StatusNoContent {
		header.Set("Content-Length", "0")
		if res.status == http.StatusNoContent {
			header.Del("Content-Length")
		}
		w.WriteHeader(res.status)
		return
	}
	res.contentType = cmp.Or(res.contentType, "text/plain; charset=utf-8")
	header.Set("Content-Type", res.contentType)
	header.Set("Content-Length", strconv.Itoa(len(res.body)))
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(res.status)
	_, _ = w.Write([]byte(res.body)) // the sender delivers again if it did not get the response
}
