package applehook

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/days"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/usercode"
)

// BackfillConfig configures a Backfill. TTx is the native transaction of its Store.
type BackfillConfig[TTx any] struct {
	// Name names the checkpoint. Use the name of the consumer behind Processor: each consumer needs a checkpoint of its
	// own. Required.
	Name string

	// Verifier is that of the receiver. It says which app and environment the history is of. Required.
	Verifier *Verifier

	// Processor handles the notifications: the same consumer that the receiver uses, so that both use the same keys.
	// Required.
	Processor driver.BatchProcessor

	// Store keeps the checkpoint. It must be a driver.ResultStore, as pgxstore and sqlstore are. Required.
	Store dedup.Store[TTx]

	// IssuerID, KeyID and PrivateKey are those of an In-App Purchase key: in App Store Connect, under Users and Access,
	// Integrations. PrivateKey is the content of the downloaded file, whose name ends in .p8. Required.
	IssuerID   string
	KeyID      string
	PrivateKey []byte

	// Since is when the Processor began to handle the notifications. Earlier ones are not fetched, because something
	// else has handled them, and they would run again. Later passes begin at the checkpoint. A time before Apple's
	// history, which has 180 days, or 30 in the sandbox, means its beginning. Do not change it later. Required.
	Since time.Time

	// OnlyFailures asks only for notifications that your server did not acknowledge. That is less to read, but does not
	// repair a database that lost commits, or notifications that an earlier server acknowledged and lost.
	//
	// Defaults to false: all notifications are passed to the Processor, and those that it knows do nothing.
	OnlyFailures bool

	// Interval is the time between two passes of Run: a second or more.
	//
	// Defaults to 1 hour.
	Interval time.Duration

	// Overlap is how long before the checkpoint each pass begins, for notifications that appear late in Apple's
	// history. It must be longer than this machine's clock may be wrong.
	//
	// Defaults to 3 hours. The minimum is 10 minutes.
	Overlap time.Duration

	// Refused is called with a notification that does not verify, although it comes from Apple's API. If it returns
	// nil, the notification is skipped. Its error ends the pass.
	//
	// Defaults to a function that returns err: the checkpoint stays before the notification until a person finds the
	// cause.
	Refused func(err error, signedPayload string) error

	// URL is the address of the App Store Server API, for tests.
	//
	// Defaults to that of the Verifier's environment.
	URL string

	// HTTPClient sends the requests. It follows no redirects.
	//
	// Defaults to a client of its own.
	HTTPClient *http.Client

	// Logger gets a line for each pass that handled new notifications, and for requests that fail.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	defaultInterval = time.Hour
	minInterval     = time.Second // each pass is a request at least, and Apple limits them
	defaultOverlap  = 3 * time.Hour
	minOverlap      = 10 * time.Minute
)

// withDefaults returns c with its defaults and the key, or one error that names all fields at fault.
func (c BackfillConfig[TTx]) withDefaults() (BackfillConfig[TTx], *ecdsa.PrivateKey, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("applehook: BackfillConfig."+format, args...))
	}
	if c.Name == "" {
		refuse("Name is required: use the name of the consumer")
	}
	if c.Verifier == nil {
		refuse("Verifier is required: use the receiver's")
	}
	if isNil(c.Processor) {
		refuse("Processor is required: use the receiver's consumer")
	} else if w, ok := c.Processor.(driver.Windowed); ok && c.Verifier != nil && w.Window() < c.Verifier.Source().Horizon {
		refuse("Processor forgets keys after %s, and Apple's history is longer: set consumer.Config.Window to %s or more",
			days.Text(w.Window()), days.Text(c.Verifier.Source().Horizon))
	}
	if isNil(c.Store) {
		refuse("Store is required")
	}
	if c.Since.IsZero() {
		refuse("Since is required: set it to when the Processor began to handle the notifications, because it would run earlier ones again")
	}
	if c.IssuerID == "" {
		refuse("IssuerID is required: copy it from App Store Connect, Users and Access, Integrations, In-App Purchase")
	}
	if c.KeyID == "" {
		refuse("KeyID is required: copy it from App Store Connect, next to the key")
	}
	key, err := parsePrivateKey(c.PrivateKey)
	if err != nil {
		refuse("PrivateKey: %w: use the content of the .p8 file from App Store Connect", err)
	}
	if c.Interval != 0 && c.Interval < minInterval {
		refuse("Interval is %v: want at least %v, or 0 for %v", c.Interval, minInterval, defaultInterval)
	}
	if c.Overlap != 0 && c.Overlap < minOverlap {
		refuse("Overlap is %v: want at least %v, or 0 for %v", c.Overlap, minOverlap, defaultOverlap)
	}
	if c.URL != "" {
		if err := checkURL(c.URL); err != nil {
			refuse("URL %q: %w", c.URL, err)
		}
	}
	if c.URL == "" && c.Verifier != nil {
		c.URL = "https://api.driver.apple.com"
		if c.Verifier.cfg.Environment == Sandbox {
			c.URL = "https://api.driver-sandbox.apple.com"
		}
	}
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.Overlap = cmp.Or(c.Overlap, defaultOverlap)
	if c.Refused == nil {
		c.Refused = func(err error, _ string) error { return err }
	}
	c.Logger = usercode.Logger(c.Logger)
	return c, key, errors.Join(wrong...)
}

// parsePrivateKey reads a PKCS #8 key on P-256, in PEM. Its errors do not contain the key.
func parsePrivateKey(p8 []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(p8)
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("it is not a PKCS #8 key")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("it is not an ECDSA key on P-256")
	}
	return key, nil
}

// checkURL refuses to send the token where others can read it.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("it is not a URL")
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return errors.New("want a scheme and a host only, such as https://127.0.0.1:8443")
	case u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback()),
		u.Scheme == "https":
		return nil
	default:
		return errors.New("want https, because the token must stay secret; http only for this machine")
	}
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
