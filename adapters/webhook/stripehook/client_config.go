package stripehook

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	// APIKey is a secret key or a restricted key. A Backfill needs permission to read events; Get, to read what it
	// fetches. Required.
	APIKey string

	// Mode is the mode of APIKey. A Backfill refuses events of the other mode. Required.
	Mode Mode

	// Account is the connected account that the Client acts for (acct_…), or a path of accounts (acct_1/acct_2), which
	// is sent as Stripe-Context.
	//
	// Defaults to the account of APIKey.
	Account string

	// Version is the Stripe-Version header. Get needs it for paths that begin with /v2/.
	//
	// Defaults to none: Stripe then uses the account's version.
	Version string

	// HTTP makes the requests. Redirects are never followed.
	//
	// Defaults to a client with http.DefaultTransport.
	HTTP *http.Client

	// BaseURL is where the API is. It must be https, unless it is this machine, as in tests.
	//
	// Defaults to https://api.stripe.com.
	BaseURL string
}

// String describes the configuration without its APIKey.
func (c ClientConfig) String() string { return "stripehook.ClientConfig(" + c.Mode.String() + ")" }

// GoString is String.
func (c ClientConfig) GoString() string { return c.String() }

const defaultBaseURL = "https://api.stripe.com"

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c ClientConfig) withDefaults() (ClientConfig, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("stripehook: ClientConfig."+format, args...))
	}
	if c.Mode != Live && c.Mode != Test {
		refuse("Mode is %v: want Live or Test, the mode of the key", c.Mode)
	}
	switch mode, known := modeOfKey(c.APIKey); {
	case c.APIKey == "":
		refuse("APIKey is empty: copy a restricted key that may read events, which begins with rk_")
	case !printable(c.APIKey):
		refuse("APIKey contains a space, a line break or another character that no key has: copy it again")
	case strings.HasPrefix(c.APIKey, "pk_"), strings.HasPrefix(c.APIKey, secretPrefix):
		refuse("APIKey is a publishable key or a signing secret: copy a restricted key, which begins with rk_")
	case known && (c.Mode == Live || c.Mode == Test) && mode != c.Mode:
		refuse("APIKey is a %v key, and ClientConfig.Mode is %v: set both to the mode of the endpoint's events",
			mode, c.Mode)
	}
	if c.Account != "" && !validScope(c.Account) {
		refuse("Account is %q: want an account's ID, which begins with acct_, or a path of such IDs", c.Account)
	}
	if c.Version != "" && !printable(c.Version) {
		refuse("Version is %q: want a version such as 2025-04-30.basil", c.Version)
	}
	c.BaseURL = cmp.Or(c.BaseURL, defaultBaseURL)
	if err := checkBaseURL(c.BaseURL); err != nil {
		refuse("BaseURL: %w", err)
	}
	c.BaseURL = strings.TrimSuffix(c.BaseURL, "/")

	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	// Stripe does not redirect. A server that does must not see the key.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.HTTP = &client
	return c, errors.Join(wrong...)
}

// modeOfKey returns the mode that a key names: sk_live_…, rk_test_…, sk_org_live_….
func modeOfKey(key string) (m Mode, known bool) {
	for _, part := range strings.Split(key, "_")[1:] {
		switch part {
		case "live":
			return Live, true
		case "test":
			return Test, true
		}
	}
	return 0, false
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// checkBaseURL refuses a URL that would get the key in the clear.
func checkBaseURL(base string) error {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("want a URL such as " + defaultBaseURL)
	}
	local := u.Hostname() == "localhost"
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		local = ip.IsLoopback()
	}
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return errors.New("want https, because the request carries the API key")
	}
	return nil
}
