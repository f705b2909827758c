package pubsubhook

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Config configures a Verifier.
type Config struct {
	// Subscriptions are the subscriptions whose messages are accepted, such as
	// "projects/my-project/subscriptions/play". Required.
	Subscriptions []string

	// Audiences are the audiences of the tokens: the subscription's push-auth-token-audience, or the URL of the
	// endpoint if it has none. Others with a token of Google for another audience are refused. Required.
	Audiences []string

	// ServiceAccounts are the service accounts of the subscriptions, such as "push@my-project.iam.gserviceaccount.com".
	// Anybody can get a token of Google with any audience for a service account of their own. Required.
	ServiceAccounts []string

	// Transport fetches Google's keys. Set it where requests need a proxy of your own. In tests it may be a *Signer.
	//
	// Defaults to http.DefaultTransport.
	Transport http.RoundTripper

	// Tolerance is how far this machine's clock may be from Google's when the times of a token are checked. It is one
	// hour at most.
	//
	// Defaults to 5 minutes.
	Tolerance time.Duration

	// Horizon is how long after its publication Pub/Sub may deliver a message, also after a seek. The Processor's
	// window must be at least as long.
	//
	// Defaults to 32 days: topics and subscriptions keep messages for 31 days at most.
	Horizon time.Duration

	// GiveUpAfter is an age of messages. When a message is older, each attempt may be the last, so it is parked after
	// one failure of the handler. Set it to a little less than the subscription's message retention, or, if it has a
	// dead-letter topic, to a little less than its attempts take.
	//
	// Defaults to 6 days: a subscription keeps messages for 7 days unless it says otherwise.
	GiveUpAfter time.Duration

	// Deadline is the subscription's acknowledgement deadline.
	//
	// Defaults to 10 seconds.
	Deadline time.Duration
}

var subscriptionName = regexp.MustCompile(`^projects/[a-z0-9.:-]{1,64}/subscriptions/[A-Za-z][A-Za-z0-9._~+%-]{2,254}$`)

// maxSubscription leaves room for the source's name in a tenant of 255 bytes.
const maxSubscription = 240

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("pubsubhook: Config."+format, args...))
	}
	for _, list := range []struct {
		name, why string
		values    []string
	}{
		{"Subscriptions", "list the subscriptions that push to this endpoint, such as projects/my-project/subscriptions/play", c.Subscriptions},
		{
			"Audiences", "copy the subscription's push-auth-token-audience, or the URL of the endpoint if it has none",
			c.Audiences,
		},
		{"ServiceAccounts", "copy the subscription's push-auth-service-account, because anybody can get a token of Google", c.ServiceAccounts},
	} {
		if len(list.values) == 0 {
			refuse("%s is required: %s", list.name, list.why)
		}
		for i, value := range list.values {
			if err := strict.Token(value, ""); err != nil {
				refuse("%s[%d] %w: %s", list.name, i, err, list.why)
			}
		}
	}
	for i, name := range c.Subscriptions {
		if !subscriptionName.MatchString(name) || len(name) > maxSubscription {
			refuse("Subscriptions[%d] is %q: want a full name, such as projects/my-project/subscriptions/play", i, name)
		}
	}
	for i, email := range c.ServiceAccounts {
		if !strings.Contains(email, "@") {
			refuse("ServiceAccounts[%d] is %q: want an e-mail address, such as push@my-project.iam.gserviceaccount.com",
				i, email)
		}
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{{"Horizon", c.Horizon}, {"GiveUpAfter", c.GiveUpAfter}, {"Deadline", c.Deadline}} {
		if field.value < 0 {
			refuse("%s is %v: want more than 0, or 0 for the default", field.name, field.value)
		}
	}
	var err error
	if c.Tolerance, err = strict.Tolerance(c.Tolerance); err != nil {
		refuse("Tolerance %w", err)
	}
	c.Subscriptions = slices.Clone(c.Subscriptions)
	c.Audiences = slices.Clone(c.Audiences)
	c.ServiceAccounts = slices.Clone(c.ServiceAccounts)
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	c.Horizon = cmp.Or(c.Horizon, 32*24*time.Hour)
	c.GiveUpAfter = cmp.Or(c.GiveUpAfter, 6*24*time.Hour)
	c.Deadline = cmp.Or(c.Deadline, 10*time.Second)
	if c.GiveUpAfter >= c.Horizon && c.Horizon > 0 {
		refuse("GiveUpAfter is %v, and the last attempt may come later than Horizon, which is %v: set a longer Horizon",
			c.GiveUpAfter, c.Horizon)
	}
	return c, errors.Join(wrong...)
}
