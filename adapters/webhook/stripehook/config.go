package stripehook

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Mode is live or test. Objects and events of one mode of a Stripe account do not exist in the other.
type Mode uint8

// The modes. The zero Mode is refused, so that a field that was left out does not make test payments real.
const (
	_    Mode = iota
	Live      // livemode is true: real money
	Test      // livemode is false: test mode and sandboxes
)

// String returns "live" or "test".
func (m Mode) String() string {
	switch m {
	case Live:
		return "live"
	case Test:
		return "test"
	default:
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
}

func modeOf(livemode bool) Mode {
	if livemode {
		return Live
	}
	return Test
}

// Secret is the signing secret of one endpoint (or event destination). Formatting it with package fmt does not print
// its Value.
type Secret struct {
	// Value is the whole secret as Stripe shows it, with "whsec_". Required.
	Value string

	// Mode is the mode of the endpoint. An event of the other mode is refused, even though its signature is right.
	// Required.
	Mode Mode

	// Connect says that the endpoint receives the events of connected accounts. Such a Live endpoint also gets their
	// test events. These are acknowledged, but do not reach the handler, see webhook.Event.Drop.
	//
	// Defaults to false: a test event from a Live endpoint is refused.
	Connect bool
}

// String describes the secret without its Value.
func (s Secret) String() string {
	if s.Connect {
		return "stripehook.Secret(" + s.Mode.String() + ", Connect)"
	}
	return "stripehook.Secret(" + s.Mode.String() + ")"
}

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Config configures a Verifier.
type Config struct {
	// Secrets are the signing secrets of the endpoints that Stripe delivers to this receiver. Have the old and the new
	// one here while a secret is rolled. Required.
	Secrets []Secret

	// Tolerance is how far the time of a signature may be from the time of the delivery, before or after it: one hour
	// at most. Stripe signs each attempt anew, so a late attempt is not an old one.
	//
	// Defaults to 5 minutes.
	Tolerance time.Duration

	// InsecureAcceptAnyAge switches the check of that time off. A delivery that somebody recorded is then accepted for
	// ever, and runs again once its key was forgotten. It is for replays of recorded requests in tests.
	//
	// Defaults to false.
	InsecureAcceptAnyAge bool

	// Account is the ID of the account that owns the endpoints (acct_…). Events that name no account get it as their
	// scope. Set it if events of that account may also reach this consumer with the account's name in them, as they do
	// from an organization's event destination, or from a Backfill whose ClientConfig.Account is set: otherwise the two
	// would count as different events. An organization's destination that names a path of accounts still makes a key of
	// its own. Changing Account makes each event that names no account new.
	//
	// Defaults to none.
	Account string

	// ObjectAlias also recognizes events by their object's ID and their type, for an account where Stripe makes two
	// events of one change: the second is parked as known content. Most types occur many times for one object, such as
	// customer.subscription.updated. So set it only for a consumer whose types all occur once per object, such as
	// checkout.session.completed.
	//
	// Defaults to false.
	ObjectAlias bool

	// Deadline is how long Stripe waits for a response. Stripe does not document it; reports say 10 to 30 seconds.
	//
	// Defaults to 10 seconds.
	Deadline time.Duration

	// GiveUpAfter is an age of events, 72 hours at most. When an event is older, a failed attempt may be Stripe's last,
	// so the event is parked.
	//
	// Defaults to 36 hours, and to 1 hour if no Secret is Live. In live mode Stripe tries for up to 3 days with growing
	// intervals. If the intervals double, the last attempt may come at any time between 36 and 72 hours. In test mode
	// Stripe tries three times within a few hours.
	GiveUpAfter time.Duration
}

const (
	defaultDeadline = 10 * time.Second
	liveTries       = 72 * time.Hour // documented: up to three days
	liveGiveUpAfter = liveTries / 2
	testGiveUpAfter = time.Hour

	// horizon is 34 days: List Events keeps an event for 30 days, and until then a person can send it again. 3 days of
	// attempts may follow, and a day is for clocks and a slow backfill.
	horizon = 34 * 24 * time.Hour

	// maxBody: Stripe documents no limit. Its lists within an object have 10 to 100 items, each with up to 50 metadata
	// of 500 characters.
	maxBody = 4 << 20

	secretPrefix = "whsec_"
	minSecret    = 24 // Stripe's have 38
)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("stripehook: Config."+format, args...))
	}
	if len(c.Secrets) == 0 {
		refuse("Secrets is empty: copy the endpoint's signing secret, which begins with %s", secretPrefix)
	}
	live := false
	seen := make(map[string]int)
	for i, s := range c.Secrets {
		if why := badSecret(s.Value); why != "" {
			refuse("Secrets[%d] %s", i, why)
		} else if first, twice := seen[s.Value]; twice {
			refuse("Secrets[%d] has the same Value as Secrets[%d]: each endpoint has a secret of its own", i, first)
		}
		seen[s.Value] = i
		switch s.Mode {
		case Live:
			live = true
		case Test:
		default:
			refuse("Secrets[%d].Mode is %v: want Live or Test, the mode of the endpoint", i, s.Mode)
		}
	}
	if c.Tolerance != 0 && c.InsecureAcceptAnyAge {
		refuse("InsecureAcceptAnyAge and Config.Tolerance are both set: set one of them")
	}
	tolerance, err := strict.Tolerance(c.Tolerance)
	if err != nil {
		refuse("Tolerance %w", err)
	}
	if c.Account != "" && !validScope(c.Account) {
		refuse("Account is %q: want an account's ID, which begins with acct_", c.Account)
	}
	if c.Deadline < 0 {
		refuse("Deadline is %v: want more than 0", c.Deadline)
	}
	if c.GiveUpAfter < 0 || c.GiveUpAfter > liveTries {
		refuse("GiveUpAfter is %v: want up to %v, after which Stripe has stopped in any case", c.GiveUpAfter, liveTries)
	}
	if len(wrong) > 0 {
		return c, errors.Join(wrong...)
	}

	c.Tolerance = tolerance
	c.Deadline = cmp.Or(c.Deadline, defaultDeadline)
	if c.GiveUpAfter == 0 {
		c.GiveUpAfter = testGiveUpAfter
		if live {
			c.GiveUpAfter = liveGiveUpAfter
		}
	}
	return c, nil
}

// badSecret says what is wrong with a secret, without showing it. An empty or guessable key makes every forgery valid.
func badSecret(value string) string {
	const fix = "copy the endpoint's signing secret, which begins with " + secretPrefix
	switch err := strict.Secret(value, minSecret); {
	case value == "":
		return "is empty: " + fix
	case strings.IndexFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0:
		return "contains a space, a line break or another character that no secret has: " + fix
	case !strings.HasPrefix(value, secretPrefix):
		return "does not begin with " + secretPrefix + ": it is no signing secret; " + fix
	case err != nil:
		return err.Error() + ": " + fix
	default:
		return ""
	}
}
