package stripehook

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/internal/days"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/usercode"
)

// BackfillConfig configures a Backfill. TTx is the native transaction of the store that keeps its checkpoint.
type BackfillConfig[TTx any] struct {
	// Client reads the events. Its Account is the account whose events are fetched: each connected account needs a
	// Backfill of its own. Required.
	Client *Client

	// Verifier is that of the receiver. Its Account and ObjectAlias count here too, so that an event has the same key
	// from both. Required.
	Verifier *Verifier

	// Processor handles the events: the same consumer.Consumer as the webhook.Receiver's, or one with the same Name on
	// the same database. With another Name each event would run twice. Behind an Inbox with a Worker, that consumer or
	// the Inbox. Behind an Inbox with a broker, and with ObjectAlias, the Inbox: the consumer does not get aliases from
	// a broker. Its window must be at least Verifier.Source().Horizon. Required.
	Processor driver.BatchProcessor

	// Checkpoint keeps in the database how far the Backfill has come. Each Backfill needs one with a name of its own.
	// Required.
	Checkpoint *webhook.Checkpoint[TTx]

	// Since is when the Processor's Name began to handle the events, by webhook or otherwise. Earlier events are not
	// fetched, because something else has handled them, and they would run again. Do not change it later. Required.
	Since time.Time

	// Types are the types to fetch, at most 20, as the endpoint has them. A type that is added later is fetched from
	// the checkpoint on.
	//
	// Defaults to all types.
	Types []string

	// UndeliveredOnly fetches only events that an endpoint has not acknowledged yet, which costs less. It does not find
	// events that were acknowledged and lost, as after the database was restored from a backup, nor those of a time
	// without an endpoint.
	//
	// Defaults to false: all events.
	UndeliveredOnly bool

	// Overlap is how far a pass goes back before the newest event of the pass before. Events have a time in whole
	// seconds, and one may become visible in the list later than another that was created after it. Choose it longer
	// than such a delay; an event that is fetched again is a duplicate and costs one claim. An event that was parked
	// has no claim: its handler runs again in each pass that goes back before it, and its letter counts that. Both
	// times are Stripe's, so a wrong clock does not matter, with one exception: if an event is ahead of this machine's
	// clock, as those of Stripe's test clocks are, the next pass goes back from this machine's time, and Overlap must
	// be longer than the clock is fast.
	//
	// Defaults to 1 hour. The maximum is 34 days.
	Overlap time.Duration

	// MaxPages is how many pages, of 100 events each at most, are kept in memory at once. If a pass has more, it goes
	// through them in shorter periods, and saves the checkpoint after each. A pass fails if more than 100 times as many
	// pages have events of one second.
	//
	// Defaults to 10.
	MaxPages int

	// Interval is how long Run waits between two passes: a second or more.
	//
	// Defaults to 10 minutes.
	Interval time.Duration

	// Logger gets one line for each pass that failed.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger
}

const (
	defaultOverlap  = time.Hour
	defaultMaxPages = 10
	defaultInterval = 10 * time.Minute
	minInterval     = time.Second // each pass is a request at least, and Stripe limits them
	maxTypes        = 20          // Stripe's limit
)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c BackfillConfig[TTx]) withDefaults() (BackfillConfig[TTx], error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("stripehook: BackfillConfig."+format, args...))
	}
	if c.Client == nil {
		refuse("Client is required: make one with NewClient")
	}
	if c.Verifier == nil {
		refuse("Verifier is required: use the receiver's")
	} else if c.Client != nil && c.Client.cfg.Account != "" && c.Verifier.cfg.Account == "" && !c.Verifier.onlyConnect() {
		refuse("Client is for the account %s, and a webhook may name none, so that an event would have two keys and run twice: "+
			"set Config.Account of the Verifier to the account that owns the endpoints, or Secret.Connect if all are Connect endpoints",
			c.Client.cfg.Account)
	}
	if v := reflect.ValueOf(c.Processor); c.Processor == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		refuse("Processor is required: the consumer.Consumer that handles the webhooks")
	} else if w, ok := c.Processor.(driver.Windowed); ok && w.Window() < horizon {
		refuse("Processor forgets keys after %s, and Stripe may deliver an event again for %s: set consumer.Config.Window to that or longer",
			days.Text(w.Window()), days.Text(horizon))
	}
	if c.Checkpoint == nil {
		refuse("Checkpoint is required: make one with webhook.NewCheckpoint")
	}
	if c.Since.IsZero() {
		refuse("Since is required: set it to when the Processor began to handle the events, because it would run earlier ones again")
	}
	if len(c.Types) > maxTypes {
		refuse("Types has %d types: Stripe allows %d; leave it out and ignore the others in the handler", len(c.Types),
			maxTypes)
	}
	for i, name := range c.Types {
		if name == "" || !printable(name) || strings.Contains(name, "*") {
			refuse("Types[%d] is %q: want a whole type such as invoice.paid", i, name)
		}
	}
	if c.Overlap < 0 || c.Overlap > horizon {
		refuse("Overlap is %v: want up to %s, or 0 for %v", c.Overlap, days.Text(horizon), defaultOverlap)
	}
	if c.MaxPages < 0 {
		refuse("MaxPages is %d: want 1 or more", c.MaxPages)
	}
	if c.Interval != 0 && c.Interval < minInterval {
		refuse("Interval is %v: want at least %v, or 0 for %v", c.Interval, minInterval, defaultInterval)
	}
	c.Overlap = cmp.Or(c.Overlap, defaultOverlap)
	c.MaxPages = cmp.Or(c.MaxPages, defaultMaxPages)
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.Logger = usercode.Logger(c.Logger)
	return c, errors.Join(wrong...)
}
