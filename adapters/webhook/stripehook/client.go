package stripehook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/internal/await"
	"github.com/txonce/txonce/internal/backoff"
)

// Client reads from Stripe's API. It repeats a request that fails because of a limit, the network or Stripe. It is safe
// for concurrent use.
type Client struct {
	cfg       ClientConfig // without its APIKey
	authorize func(*http.Request)
	most      int64 // bytes of an answer; maxResponse, except in tests
}

// NewClient returns a Client, or an error that names all fields of cfg that are at fault. It uses no network.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	authorization := "Bearer " + cfg.APIKey // in a function, so that a Client in a log does not show it
	cfg.APIKey = ""
	return &Client{cfg: cfg, most: maxResponse, authorize: func(r *http.Request) { r.Header.Set("Authorization", authorization) }}, nil
}

const (
	maxTries       = 8
	requestTimeout = time.Minute
	backoffBase    = 500 * time.Millisecond
	backoffLimit   = 30 * time.Second
	maxRetryAfter  = 5 * time.Minute // so that a wrong header cannot stop a backfill for days
	maxResponse    = 32 << 20        // bytes: 100 events of more than 300 kB each
)

var errTooLarge = errors.New("the answer is too large")

// APIError is an answer of Stripe that another request would only repeat, or that was repeated until the tries were
// spent.
type APIError struct {
	Status    int    // of HTTP
	Type      string // such as invalid_request_error
	Code      string // such as resource_missing
	RequestID string
}

func (e *APIError) Error() string {
	text := "Stripe answered " + strconv.Itoa(e.Status)
	for _, detail := range []string{e.Type, e.Code, e.RequestID} {
		if detail != "" {
			text += " " + detail
		}
	}
	return text
}

// Get fetches a resource as it is now, such as the object of an event, because events arrive in any order and a payload
// may be older than what is known already. path begins with /v1/ or /v2/, as Event.ObjectURL does. account is the
// account that the resource belongs to, as the message's header ContextHeader names it; empty: ClientConfig.Account.
//
// A handler that calls it holds its transaction meanwhile: give ctx a deadline.
func (c *Client) Get(ctx context.Context, path, account string) (resource []byte, err error) {
	u, err := url.Parse(path)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || strings.Contains(u.Path, "..") ||
		!strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v2/") {
		// the key goes to no other place
		return nil, errors.New("stripehook: Get: want a path that begins with /v1/ or /v2/")
	}
	if account != "" && !validScope(account) {
		return nil, errors.New("stripehook: Get: want an account's ID, or a path of such IDs")
	}
	resource, err = c.get(ctx, path, account, func(body []byte) error {
		if !json.Valid(body) {
			return errors.New("its answer is not JSON")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("stripehook: Get %s: %w", u.Path, err)
	}
	return resource, nil
}

// get repeats a request until its answer satisfies read.
func (c *Client) get(ctx context.Context, path, account string, read func(body []byte) error) (body []byte, err error) {
	for try := 1; ; try++ {
		body, again, err := c.try(ctx, path, account)
		if err == nil {
			if err = read(body); err == nil {
				return body, nil
			}
			again.possible = true // an answer that was cut, or made by something in between
		}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !again.possible:
			return nil, err
		case try == maxTries:
			return nil, fmt.Errorf("after %d tries: %w", try, err)
		}
		if err := await.Sleep(ctx, max(again.after, backoff.HalfJitter(backoffBase, backoffLimit, try))); err != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// again says whether another try may help, and how long Stripe wants to wait for it.
type again struct {
	possible bool
	after    time.Duration
}

func (c *Client) try(ctx context.Context, path, account string) (body []byte, a again, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.cfg.BaseURL+path, nil)
	if err != nil {
		return nil, a, err
	}
	c.authorize(r)
	if c.cfg.Version != "" {
		r.Header.Set("Stripe-Version", c.cfg.Version)
	}
	switch account = cmp.Or(account, c.cfg.Account); {
	case account == "":
	case strings.Contains(account, "/"):
		r.Header.Set("Stripe-Context", account)
	default:
		r.Header.Set("Stripe-Account", account)
	}
	response, err := c.cfg.HTTP.Do(r)
	if err != nil {
		return nil, again{possible: true}, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, c.most+1))
	if response.StatusCode == http.StatusOK {
		switch {
		case err != nil:
			return nil, again{possible: true}, fmt.Errorf("read the answer: %w", err)
		case int64(len(body)) > c.most:
			return nil, a, fmt.Errorf("%w: it has more than %d bytes", errTooLarge, c.most)
		}
		return body, a, nil
	}
	return nil, retryOf(response), apiError(response, body)
}

// retryOf decides as Stripe's own libraries do: Stripe-Should-Retry overrides the status.
func retryOf(r *http.Response) (a again) {
	switch r.Header.Get("Stripe-Should-Retry") {
	case "true":
		a.possible = true
	case "false":
	default:
		a.possible = r.StatusCode == http.StatusConflict || r.StatusCode == http.StatusTooManyRequests ||
			r.StatusCode >= 500
	}
	if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && seconds > 0 {
		a.after = min(time.Duration(min(seconds, 1<<20))*time.Second, maxRetryAfter)
	}
	return a
}

// apiError reads no message from the answer, because messages quote what was sent.
func apiError(r *http.Response, body []byte) error {
	var answer struct {
		Error struct{ Type, Code string } `json:"error"`
	}
	_ = json.Unmarshal(body, &answer) // a proxy's page has neither
	e := &APIError{Status: r.StatusCode, RequestID: word(r.Header.Get("Request-Id"))}
	e.Type, e.Code = word(answer.Error.Type), word(answer.Error.Code)
	return e
}

// word returns s if it is a name, as Stripe's types and codes are.
func word(s string) string {
	if len(s) > 64 || !printable(s) {
		return ""
	}
	return s
}
