package httpidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/usercode"
)

// MinSecret is the shortest secret, in bytes.
const MinSecret = 32

// Config configures a Guard. TTx is the native transaction of its Store. All functions must be safe for concurrent use.
type Config[TTx any] struct {
	// Name is part of every key. After it was changed, every request counts as new. Guards with different names share
	// no keys. Required.
	Name string

	// Store keeps the keys and the responses. It must be a driver.ResultStore, as pgxstore and sqlstore are. Required.
	Store dedup.Store[TTx]

	// Secrets hide the clients' keys: the database gets HMACs of them. Each secret has MinSecret bytes or more. All
	// processes need the same secrets.
	//
	// To replace a secret, put the new one first and keep the old one behind it until the Window has passed since the
	// last process without the new one stopped. Processes with [old] and with [new, old] may run side by side. Each
	// secret after the first costs every request one more row. Required.
	Secrets [][]byte

	// Principal returns who sent the request: the stable owner of the keys, such as an account and its user. It must
	// not be a token, which changes, nor a tenant alone, because then one user would get another user's responses. If
	// it fails or returns "", the request is answered with 401. Anonymous is a Principal for routes without
	// authentication. Required.
	Principal func(r *http.Request) (string, error)

	// Header is the name of the header with the key. A key in another header, such as Idempotency-Key beside
	// X-Idempotency-Key, is not seen.
	//
	// Defaults to Idempotency-Key.
	Header string

	// Methods are the guarded methods. With other methods the key is ignored: Wrap passes the request on as it is, and
	// Handle runs its handler in a transaction without a key. PUT and DELETE are such methods: a repeat of them runs
	// again, unless they are named here.
	//
	// Defaults to POST and PATCH.
	Methods []string

	// Optional accepts requests without a key. They run in a transaction, and a retry runs again.
	//
	// Defaults to false: a request without a key is answered with 400.
	Optional bool

	// StrictKey accepts only keys in quotes, as the IETF draft wants them. Most clients send keys without quotes.
	//
	// Defaults to false: "abc" with and without quotes are the same key.
	StrictKey bool

	// Window is how long keys and responses are remembered. The minimum is dedup.MinWindow. Clients must never use a
	// key again for another request, not even after the Window: it would run, but with the same DownstreamKey as the
	// first, so that other systems take its calls for repeats. KeyTime refuses old keys.
	//
	// Defaults to 24 hours.
	Window time.Duration

	// ClientRetryHorizon is how long clients may repeat a request. A longer horizon than Window is refused, because a
	// retry after the Window runs again.
	//
	// Defaults to Window.
	ClientRetryHorizon time.Duration

	// KeyTime returns when a key was made, or the zero time if the key does not contain it. With a KeyTime, a retry
	// that comes after its key was forgotten is answered with 409 and does not run again. A client whose clock is wrong
	// is refused too. UUIDv7Time is such a function.
	//
	// Defaults to none.
	KeyTime func(key string) time.Time

	// Wait is how long a request waits while another request with its key runs. Then it is answered with 409. Waiting
	// in the process that runs the other request needs no connection. A Wait of less than 1 ms, also a negative one,
	// counts as 1 ms.
	//
	// Defaults to 2 seconds.
	Wait time.Duration

	// Timeout ends the context of a handler. The handler's work is rolled back, and the answer is 503. The client's
	// disconnect does not end it.
	//
	// Defaults to 30 seconds.
	Timeout time.Duration

	// Base ends the contexts of all running handlers when it ends: their work is rolled back, and the answer is 503.
	// End it when http.Server.Shutdown has waited long enough: Shutdown waits for handlers, also for those whose client
	// is gone.
	//
	// Defaults to none.
	Base context.Context

	// FollowClient ends a handler's context when the client disconnects, so that its work is rolled back.
	//
	// Defaults to false: once the key is claimed, the work is completed and its response is stored for the retry.
	FollowClient bool

	// MaxBody is the longest body of a request, in bytes. It is read into memory.
	//
	// Defaults to 1 MiB.
	MaxBody int64

	// MaxResponse is the longest response with its headers, in bytes. It is kept in memory until COMMIT. A handler that
	// writes more is rolled back, and the answer is 500.
	//
	// Defaults to 1 MiB.
	MaxResponse int

	// MaxConcurrent is how many transactions run at once. Further requests wait for 5 seconds and are then answered
	// with 503. It must leave connections of the Store's pool for others, and for handlers that need a second one. All
	// Guards on one pool count together: use one Guard for all routes.
	//
	// Defaults to three quarters of the pool's limit, or to 64 if the Store does not know a limit.
	MaxConcurrent int

	// Fingerprint returns the content that distinguishes a retry from another request with the same key. CompactJSON
	// ignores white space in JSON. It replaces both the body and the media type.
	//
	// Defaults to the media type without its parameters, and all bytes of the body.
	Fingerprint func(r *http.Request, body []byte) (content []byte, err error)

	// Record reports whether a response with this status is stored, so that a retry gets it again. It is asked about
	// statuses from 400 on: lower ones are stored with the work, and 408, 409, 425, 429 and 503 never. After a response
	// that is not stored, a retry runs again. RecordStripeV1 and RecordStripeV2 behave as the APIs of Stripe do.
	//
	// Defaults to 402, 410 and 451, which are final. All other statuses ask for a mended request, other headers or
	// another time.
	Record func(status int) bool

	// Headers are names of further response headers that are stored. Cookies, credentials, and headers of one
	// connection are refused.
	//
	// Defaults to none besides Content-Type, Content-Encoding, Content-Language, Location, ETag, Link, Cache-Control,
	// Content-Disposition, Content-Range and X-Content-Type-Options.
	Headers []string

	// Seal encrypts a response before it is stored, and Open decrypts it. Both get the row's identity, which the
	// encryption must authenticate: it is the additional data of a cipher.AEAD. Responses that Open cannot decrypt are
	// answered with 409. Responses that were stored before Seal was set are replayed as they are, so a program that can
	// write to the table can still forge responses.
	//
	// Defaults to storing responses as they are.
	Seal func(response, identity []byte) (sealed []byte, err error)
	Open func(sealed, identity []byte) (response []byte, err error)

	// Problem writes the body of a refusal in the form that the clients of the API know. The status and the headers
	// stay as they are. An empty contentType stands for application/problem+json. It gets the request as it arrived,
	// whose body has been read.
	//
	// Defaults to p as JSON.
	Problem func(r *http.Request, p Problem) (contentType string, body []byte)

	// Trace has hooks for metrics, spans and logs, such as those of LogDecisions. Join several with Then.
	//
	// Defaults to none.
	Trace *Trace

	// Logger gets one line for each request that is answered with 5xx, and for each error of a handler. Replays and
	// clients that are gone get none. Lines never contain keys or bodies.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config[TTx]) withDefaults() (Config[TTx], error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("httpidem: Config."+format, args...))
	}
	c.Window = cmp.Or(c.Window, 24*time.Hour)
	if c.Store == nil {
		refuse("Store is required")
	} else if _, ok := c.Store.(driver.ResultStore[TTx]); !ok {
		refuse("Store: %T is not a driver.ResultStore and cannot keep responses; use pgxstore or sqlstore", c.Store)
	}
	if err := (dedup.Record{Key: dedup.Key{Consumer: c.Name, ID: "-"}}).Validate(); err != nil {
		refuse("Name %q: %w; give the API a name, such as \"payments-api\"", c.Name, err)
	}
	if c.Principal == nil {
		refuse("Principal is required: return the account and user that the request was authenticated for, or set httpidem.Anonymous")
	}
	if c.Window < dedup.MinWindow {
		refuse("Window is %v: want %v or more", c.Window, dedup.MinWindow)
	}
	switch {
	case c.ClientRetryHorizon > c.Window:
		refuse("Window is %v, shorter than Config.ClientRetryHorizon, %v: a retry after the window would run again; make Window longer",
			c.Window, c.ClientRetryHorizon)
	case c.ClientRetryHorizon < 0:
		refuse("ClientRetryHorizon is %v: want 0 or more", c.ClientRetryHorizon)
	}
	c.Secrets = c.checkSecrets(refuse)
	c.checkLimits(refuse)
	c.Header = c.checkKeyHeader(refuse)
	c.Headers = checkHeaders(c.Headers, refuse)
	if (c.Seal == nil) != (c.Open == nil) {
		refuse("Seal and Config.Open: set both or neither")
	}

	c.Methods = slices.Clone(c.Methods)
	if len(c.Methods) == 0 {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	for _, m := range c.Methods {
		if m != strings.ToUpper(m) {
			refuse("Methods has %q: methods are upper-case, write %q", m, strings.ToUpper(m))
		}
		if slices.Contains([]string{
			"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace,
			http.MethodConnect,
		}, m) {
			refuse("Methods has %q: want methods that change something, such as POST or PUT", m)
		}
	}
	switch {
	case c.Wait == 0:
		c.Wait = 2 * time.Second
	case c.Wait < time.Millisecond:
		// also a negative Wait: a store must wait for other processes, and takes 0 for no limit
		c.Wait = time.Millisecond
	}
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.MaxResponse = cmp.Or(c.MaxResponse, 1<<20)
	if c.Fingerprint == nil {
		c.Fingerprint = mediaTypeAndBody
	}
	if c.Record == nil {
		c.Record = recordDefault
	}
	c.Logger = usercode.Logger(c.Logger)
	c.Trace = c.Trace.complete(&hooks.Panics{Logger: c.Logger.With("guard", c.Name), Owner: "httpidem"})
	return c, errors.Join(wrong...)
}
