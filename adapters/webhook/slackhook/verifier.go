package slackhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/bodymac"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

const (
	source = "slack"

	// horizon has a day's reserve: with Delayed Events, Slack repeats an event for a day.
	horizon = 2 * 24 * time.Hour

	deadline = 3 * time.Second

	// maxBody: Slack documents no limit. A message has up to 40,000 characters, 50 blocks and 100 attachments.
	maxBody = 4 << 20

	// giveUpAfter is between the last two attempts without Delayed Events, which come after one minute and after five.
	giveUpAfter = 4 * time.Minute

	signatureHeader = "X-Slack-Signature"
	timestampHeader = "X-Slack-Request-Timestamp"
)

// Verifier verifies the requests to one app. It is a webhook.Verifier, and safe for concurrent use.
type Verifier struct {
	tolerance time.Duration
	keys      [][]byte
}

var _ webhook.Verifier = (*Verifier)(nil)

// New returns a Verifier, or an error that names all fields of cfg that are at fault. It uses no network.
func New(cfg Config) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Verifier{tolerance: cfg.Tolerance, keys: bodymac.Keys(cfg.Secrets)}, nil
}

// Source describes Slack.
func (v *Verifier) Source() webhook.Source {
	return webhook.Source{
		Name: source, Horizon: horizon, Deadline: deadline, GiveUpAfter: giveUpAfter,
		MaxBody: maxBody,
	}
}

// Verify returns the one event of d.
func (v *Verifier) Verify(_ context.Context, d *webhook.Delivery) ([]webhook.Event, error) {
	signature, err := strict.Header(d.Header, signatureHeader)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	timestamp, err := strict.Header(d.Header, timestampHeader)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "%w", err)
	}
	attempt, err := strict.UnixSeconds(timestamp)
	if err != nil {
		return nil, webhook.Refuse(webhook.Unsigned, "header %s: %w", timestampHeader, err)
	}
	with := func(key []byte) string { return sign(key, timestamp, d.Body) }
	if err := bodymac.Authenticate(v.keys, signature, with, "the app's signing secret"); err != nil {
		return nil, err
	}
	if err := strict.Recent(attempt, d.Time, v.tolerance); err != nil {
		return nil, webhook.Refuse(webhook.BadTime, "%w", err)
	}
	event, err := read(d.Body)
	if err != nil {
		return nil, webhook.Refuse(webhook.Malformed, "%w", err)
	}
	return []webhook.Event{event}, nil
}

func sign(secret []byte, timestamp string, body []byte) string {
	return "v0=" + hex.EncodeToString(strict.MAC(sha256.New, secret, []byte("v0:"+timestamp+":"), body))
}

// Sign returns the headers that Slack would add to body, for tests. at is the time of the attempt.
func Sign(secret string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set(signatureHeader, sign([]byte(secret), timestamp, body))
	h.Set(timestampHeader, timestamp)
	return h
}
