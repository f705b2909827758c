package applehook

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	requestTimeout  = 30 * time.Second
	maxHistoryBytes = 32 << 20 // a page has 20 notifications
	tokenLife       = 10 * time.Minute
)

// historyClient asks Apple for pages of notifications.
type historyClient struct {
	url           string
	client        *http.Client
	issuer, keyID string
	bundleID      string
	key           *ecdsa.PrivateKey
}

// span is the body of a request. It is the same for all pages.
type span struct {
	Start        int64 `json:"startDate"` // in milliseconds
	End          int64 `json:"endDate"`
	OnlyFailures bool  `json:"onlyFailures,omitempty"`
}

// page is a response.
type page struct {
	HasMore bool   `json:"hasMore"`
	Token   string `json:"paginationToken"`
	History []struct {
		SignedPayload string `json:"signedPayload"`
	} `json:"notificationHistory"`
}

// apiError is a response that is not a page.
type apiError struct {
	status  int
	code    int64 // Apple's; 0: none
	message string
	after   time.Duration // how long to wait
}

func (e *apiError) Error() string {
	return fmt.Sprintf("Apple answers with status %d, error code %d: %s", e.status, e.code, e.message)
}

// Codes of 404 that are worth another request.
const (
	accountNotFoundRetryable = 4040002
	appNotFoundRetryable     = 4040004
)

// retryable reports whether the same request may succeed later. Errors of the network are.
func retryable(err error) bool {
	e, ok := errors.AsType[*apiError](err)
	return !ok || e.status >= 500 || e.status == http.StatusTooManyRequests || e.status == http.StatusRequestTimeout ||
		e.code == accountNotFoundRetryable || e.code == appNotFoundRetryable
}

// outdated reports that the request was right when the span began: its pagination token has expired, or its start date
// has left Apple's history.
func outdated(err error) bool {
	const startDateTooFarInPast, invalidPaginationToken, paginationTokenExpired = 4000012, 4000014, 4000017
	e, ok := errors.AsType[*apiError](err)
	return ok && (e.code == startDateTooFarInPast || e.code == invalidPaginationToken ||
		e.code == paginationTokenExpired)
}

// page makes one request. token is empty for the first page.
func (c *historyClient) page(ctx context.Context, s span, token string) (*page, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	address := c.url + "/inApps/v1/notifications/history"
	if token != "" {
		address += "?paginationToken=" + url.QueryEscape(token)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	bearer, err := c.bearer(now)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxHistoryBytes+1))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, newAPIError(resp, content, now)
	}
	if len(content) > maxHistoryBytes {
		return nil, fmt.Errorf("the page has more than %d bytes", maxHistoryBytes)
	}
	var p *page
	if err := json.Unmarshal(content, &p); err != nil {
		return nil, fmt.Errorf("read the page: %w", err)
	}
	if p == nil || p.HasMore && p.Token == "" {
		return nil, errors.New("read the page: it has no paginationToken, although there are more")
	}
	return p, nil
}

func newAPIError(resp *http.Response, content []byte, now time.Time) error {
	e := &apiError{status: resp.StatusCode, after: retryAfter(resp.Header.Get("Retry-After"), now)}
	var body struct {
		Code    int64  `json:"errorCode"`
		Message string `json:"errorMessage"`
	}
	if json.Unmarshal(content, &body) == nil {
		e.code, e.message = body.Code, fmt.Sprintf("%.200q", body.Message)
	}
	return e
}

// maxRetryAfter limits how long a server's answer can pause a Backfill. Apple's limits are per hour.
const maxRetryAfter = 2 * time.Hour

// retryAfter reads the header Retry-After. Apple's is a time in milliseconds since 1970; RFC 9110 has seconds to wait,
// or a date.
func retryAfter(header string, now time.Time) time.Duration {
	wait := time.Duration(0)
	header = strings.TrimSpace(header)
	if n, err := strconv.ParseInt(header, 10, 64); err == nil {
		const millis = 1e11 // as seconds, that would be 3,000 years
		switch {
		case n >= millis:
			wait = time.UnixMilli(min(n, maxMillis)).Sub(now)
		case n > 0:
			wait = time.Duration(min(n, int64(maxRetryAfter/time.Second))) * time.Second
		}
	} else if date, err := http.ParseTime(header); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// bearer returns a JSON Web Token for one request. Apple accepts at most an hour of life.
func (c *historyClient) bearer(now time.Time) (string, error) {
	header, err := json.Marshal(map[string]string{"alg": "ES256", "kid": c.keyID, "typ": "JWT"})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"iss": c.issuer, "iat": now.Unix(), "exp": now.Add(tokenLife).Unix(), "aud": "appstoreconnect-v1",
		"bid": c.bundleID,
	})
	if err != nil {
		return "", err
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + "." + base64.RawURLEncoding.EncodeToString(claims)
	hash := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, c.key, hash[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}
