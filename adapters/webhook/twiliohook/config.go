package twiliohook

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Config configures a Verifier.
type Config struct {
	// AuthTokens are the auth tokens that requests may be signed with: the account's, and while it is replaced also the
	// other one. Each has 32 characters. Required.
	AuthTokens []string

	// AccountSids are the accounts whose forms are accepted, by the parameter AccountSid.
	//
	// Defaults to all accounts that sign with AuthTokens.
	AccountSids []string

	// Identify returns what identifies the event that a form is about. Two different events must not have the same ID,
	// and one event must have the same ID in each delivery. Set it for forms that StatusOf refuses, and for voice
	// webhooks that come several times with one CallStatus. An error refuses the delivery. It must be safe for
	// concurrent use.
	//
	// Defaults to StatusOf.
	Identify func(form url.Values) (Identity, error)

	// IdentifyJSON returns the events that a JSON body has, in order, for an endpoint that Twilio sends JSON to. Forms
	// are refused then. No event is an error.
	//
	// Defaults to nil: the endpoint accepts forms only.
	IdentifyJSON func(body []byte) ([]Identity, error)

	// Reply is the response to accepted requests. EmptyTwiML is another one that Twilio understands.
	//
	// Defaults to status 204.
	Reply webhook.Reply

	// Deadline is how long Twilio waits for a response; rt and tt of the connection overrides.
	//
	// Defaults to 15 seconds.
	Deadline time.Duration
}

// Identity identifies an event. Its parts must come from the form or body, because only these are signed.
type Identity struct {
	ID      string    // such as "SM…:delivered"; 1 to 255 printable bytes
	Topic   string    // the event's type
	Payload []byte    // of IdentifyJSON: this event's part of the body; nil: all of it
	Time    time.Time // when the event was created, if the body says that
}

// EmptyTwiML returns a response that tells Twilio to do nothing more.
func EmptyTwiML() webhook.Reply {
	return webhook.Reply{Status: http.StatusOK, ContentType: "text/xml", Body: []byte("<Response/>")}
}

const minToken = 32

var accountSid = regexp.MustCompile(`^AC[0-9a-f]{32}$`)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("twiliohook: Config."+format, args...))
	}
	if len(c.AuthTokens) == 0 {
		refuse("AuthTokens is required: copy the account's auth token from the Twilio console")
	}
	for i, token := range c.AuthTokens {
		err := strict.Written(token)
		if err == nil {
			err = strict.Secret(token, minToken)
		}
		if err != nil {
			refuse("AuthTokens[%d] %w: copy the account's auth token from the Twilio console", i, err)
		}
	}
	for i, sid := range c.AccountSids {
		if !accountSid.MatchString(sid) {
			refuse("AccountSids[%d] is %q: want AC and 32 hexadecimal digits", i, sid)
		}
	}
	if c.IdentifyJSON != nil && c.Identify != nil {
		refuse("IdentifyJSON and Config.Identify are both set: use one endpoint for JSON and another one for forms")
	}
	if c.IdentifyJSON != nil && len(c.AccountSids) > 0 {
		refuse("AccountSids has no effect with IdentifyJSON: let IdentifyJSON refuse other accounts")
	}
	if err := strict.Reply(c.Reply.Status, c.Reply.Body); err != nil {
		refuse("Reply%w", err)
	}
	if c.Deadline < 0 {
		refuse("Deadline is %v: want more than 0, or 0 for the default", c.Deadline)
	}
	c.AuthTokens, c.AccountSids = slices.Clone(c.AuthTokens), slices.Clone(c.AccountSids)
	if c.Identify == nil {
		c.Identify = StatusOf
	}
	if c.Reply.Status == 0 && len(c.Reply.Body) == 0 {
		c.Reply.Status = http.StatusNoContent
	}
	c.Deadline = cmp.Or(c.Deadline, 15*time.Second)
	return c, errors.Join(wrong...)
}
