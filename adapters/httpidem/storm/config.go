package storm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config configures Run.
type Config struct {
	// URL is where the requests go. Required.
	URL string

	// Method is the method of the requests.
	//
	// Defaults to POST.
	Method string

	// Header is the name of the header with the key.
	//
	// Defaults to Idempotency-Key.
	Header string

	// Headers are further headers of each request, such as Authorization.
	//
	// Defaults to Content-Type: application/json.
	Headers http.Header

	// Body is the body of the requests. "{n}" in it is replaced by the number of the key, so that the requests of two
	// keys differ.
	//
	// Defaults to an empty JSON object.
	Body string

	// Keys is how many requests there are, one after the other. Each has a key of its own.
	//
	// Defaults to 10.
	Keys int

	// Clients is how many clients send each request at the same moment.
	//
	// Defaults to 20.
	Clients int

	// Tries is how often a client sends its request at most.
	//
	// Defaults to 8.
	Tries int

	// Cuts is the share of tries that get no answer, up to MaxCuts.
	//
	// Defaults to 0.
	Cuts float64

	// CutWithin is how long the server works at most before a connection is cut.
	//
	// Defaults to 50 milliseconds.
	CutWithin time.Duration

	// Backoff is how long a client waits before its first retry. It doubles with each retry, up to 32 times. The
	// seconds of Retry-After are added, up to five.
	//
	// Defaults to 100 milliseconds.
	Backoff time.Duration

	// Jitter makes each wait a random part of its Backoff. Without it, all clients come back at the same moment.
	Jitter bool

	// TryTimeout is how long a client waits for an answer.
	//
	// Defaults to 30 seconds.
	TryTimeout time.Duration

	// Settle is how long Run waits before it counts effects at the end: handlers whose client is gone may still work.
	//
	// Defaults to one second.
	Settle time.Duration

	// Effects counts the effects that all requests have had so far, such as the rows of a table. It is called before and
	// after the storm. Nobody else may cause effects meanwhile.
	//
	// Defaults to none: only the answers are compared.
	Effects func(ctx context.Context) (int, error)

	// Transport sends the requests.
	//
	// Defaults to one with a connection for each client, which follows no redirects.
	Transport http.RoundTripper
}

// The bounds of a Config. MaxRequests is that of Keys, Clients and Tries multiplied.
const (
	MaxKeys     = 1000
	MaxClients  = 500
	MaxTries    = 20
	MaxCuts     = .95
	MaxRequests = 200_000
)

// Validate returns an error that names all fields at fault, as Run does.
func (c Config) Validate() error {
	_, err := c.withDefaults()
	return err
}

func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf("storm: Config."+format, args...)) }
	c.Method, c.Header = cmp.Or(c.Method, http.MethodPost), cmp.Or(c.Header, "Idempotency-Key")
	c.Body = cmp.Or(c.Body, "{}")
	if c.Headers = c.Headers.Clone(); c.Headers == nil {
		c.Headers = http.Header{}
	}
	if c.Headers.Get("Content-Type") == "" {
		c.Headers.Set("Content-Type", "application/json")
	}
	c.Keys, c.Clients, c.Tries = cmp.Or(c.Keys, 10), cmp.Or(c.Clients, 20), cmp.Or(c.Tries, 8)
	c.Backoff, c.CutWithin = cmp.Or(c.Backoff, 100*time.Millisecond), cmp.Or(c.CutWithin, 50*time.Millisecond)
	c.TryTimeout, c.Settle = cmp.Or(c.TryTimeout, 30*time.Second), cmp.Or(c.Settle, time.Second)
	switch u, err := url.Parse(c.URL); {
	case err != nil:
		refuse("URL: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		refuse("URL is %q: want http:// or https:// and a host", c.URL)
	}
	if _, err := http.NewRequest(c.Method, "http://host", nil); err != nil || c.Method != strings.ToUpper(c.Method) { //nolint:noctx // it is not sent
		refuse("Method is %q: want the name of a method in upper case", c.Method)
	}
	for name, most := range map[string]struct{ is, most int }{
		"Keys": {c.Keys, MaxKeys}, "Clients": {c.Clients, MaxClients}, "Tries": {c.Tries, MaxTries},
	} {
		if most.is < 1 || most.is > most.most {
			refuse("%s is %d: want 1 to %d", name, most.is, most.most)
		}
	}
	if len(wrong) == 0 && c.Keys*c.Clients*c.Tries > MaxRequests {
		refuse("Keys, Clients and Tries allow %d requests: want %d at most", c.Keys*c.Clients*c.Tries, MaxRequests)
	}
	if !(c.Cuts >= 0 && c.Cuts <= MaxCuts) {
		refuse("Cuts is %v: want 0 to %v", c.Cuts, MaxCuts)
	}
	for name, d := range map[string]time.Duration{
		"CutWithin": c.CutWithin, "Backoff": c.Backoff, "TryTimeout": c.TryTimeout, "Settle": c.Settle,
	} {
		if d < 0 {
			refuse("%s is %v: want more than 0", name, d)
		}
	}
	if c.Transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConnsPerHost, own.MaxIdleConns = c.Clients, c.Clients
		c.Transport = own
	}
	return c, errors.Join(wrong...)
}

// wait is how long a client waits after its nth try.
func (c *Config) wait(n int, retryAfter time.Duration) time.Duration {
	d := c.Backoff << min(n-1, 5)
	if c.Jitter {
		d = rand.N(d + 1)
	}
	return d + min(retryAfter, 5*time.Second)
}
