package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// The reasons to refuse a delivery before it reaches the Verifier.
const (
	BadMethod Refusal = "bad-method"    // it is no POST: answered with 405
	Encoded   Refusal = "encoded"       // it has a Content-Encoding: answered with 415
	TooLarge  Refusal = "too-large"     // it is larger than Config.MaxBody: answered with 413
	TooSlow   Refusal = "too-slow"      // it was not read within Config.ReadTimeout: answered with 408
	Truncated Refusal = "truncated"     // its body ended early: answered with 400
	bodyTaken         = "body-was-read" // middleware has read the body: answered with 500
)

// budgetAgain is Retry-After when the bodies of other deliveries fill Config.MaxInFlight.
const budgetAgain = 5 * time.Second

// read reads the delivery, or returns the response to a request that is none. held gets the bytes of its body.
func (r *Receiver) read(w http.ResponseWriter, req *http.Request, began time.Time, held *share) (*Delivery, *response) {
	if refused := r.checkHeader(req); refused != nil {
		if req.ContentLength != 0 { // or net/http would wait for the body before it sends the response
			refused = refused.with("Connection", "close")
		}
		return nil, refused
	}
	body, refused := r.readBody(w, req, began, held)
	if refused != nil {
		return nil, refused
	}
	return &Delivery{Header: req.Header, Body: body, URL: r.url(req), Time: began}, nil
}

// checkHeader refuses what need not be read.
func (r *Receiver) checkHeader(req *http.Request) *response {
	if req.Method != http.MethodPost {
		return refusal(http.StatusMethodNotAllowed, BadMethod, fmt.Errorf("the method is %.20q",
			req.Method)).with("Allow", http.MethodPost)
	}
	for _, value := range req.Header.Values("Content-Encoding") {
		if value != "" && !strings.EqualFold(value, "identity") {
			return refusal(http.StatusUnsupportedMediaType, Encoded, fmt.Errorf("the Content-Encoding is %.40q",
				value)).with("Accept-Encoding", "identity")
		}
	}
	if most := r.cfg.MaxBody; req.ContentLength > most {
		return refusal(http.StatusRequestEntityTooLarge, TooLarge,
			fmt.Errorf("it has %d bytes, more than %d; see Config.MaxBody", req.ContentLength, most))
	}
	return nil
}

func (r *Receiver) readBody(w http.ResponseWriter, req *http.Request, began time.Time,
	held *share,
) ([]byte, *response) {
	if req.Body == nil {
		return nil, nil
	}
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(began.Add(r.cfg.ReadTimeout))
	wait, cancel := context.WithDeadline(req.Context(), began.Add(r.cfg.ReadTimeout))
	defer cancel()
	body, err := readAll(wait, http.MaxBytesReader(w, req.Body, r.cfg.MaxBody), req.ContentLength, r.cfg.MaxBody, held)
	if err == nil {
		// net/http lifts the limit at the end of a body only if it reads that end after the limit was set, so not of an
		// empty body
		_ = conn.SetReadDeadline(time.Time{})
	}
	tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isTooLarge:
		return nil, refusal(http.StatusRequestEntityTooLarge, TooLarge,
			fmt.Errorf("it has more than %d bytes; see Config.MaxBody", tooLarge.Limit))
	case errors.Is(err, errBudget), errors.Is(err, os.ErrDeadlineExceeded) && held.waited >= r.cfg.ReadTimeout/2:
		return nil, later(budgetAgain, fmt.Errorf("%w, and this one waited for %v", errBudget,
			held.waited.Round(time.Millisecond))).with("Connection", "close")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refusal(http.StatusRequestTimeout, TooSlow, fmt.Errorf("the body was not complete after %v",
			r.cfg.ReadTimeout)).with("Connection", "close")
	case err != nil:
		return nil, refusal(http.StatusBadRequest, Truncated, err)
	case req.ContentLength >= 0 && int64(len(body)) != req.ContentLength: // net/http has no such bodies
		return nil, &response{
			status: http.StatusInternalServerError, body: bodyError, refusal: bodyTaken,
			err: fmt.Errorf("%d of %d bytes of the body are left: middleware must not read the body before the Receiver does", len(body), req.ContentLength),
		}
	}
	return body, nil
}

// url returns the URL that the sender used: the path and query are taken as they were received, because a signature
// covers their bytes, and the rest from the Config, because the client chooses the Host header.
func (r *Receiver) url(req *http.Request) string {
	if r.cfg.PublicURL == "" {
		return ""
	}
	uri := req.RequestURI // not changed by http.StripPrefix
	if !strings.HasPrefix(uri, "/") {
		u := req.URL
		if absolute, err := url.ParseRequestURI(uri); err == nil { // a request in absolute form
			u = absolute
		}
		uri = u.RequestURI()
	}
	return r.cfg.PublicURL + uri
}
