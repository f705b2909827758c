package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/days"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/hooks"
	"github.com/txonce/txonce/internal/risks"
	"github.com/txonce/txonce/internal/usercode"
)

// Defaults of Config.
const (
	DefaultMaxBody     = 1 << 20  // for a Source without MaxBody
	DefaultMaxInFlight = 64 << 20 // or 6 times MaxBody, if that is more
	DefaultReadTimeout = 10 * time.Second
	DefaultDeadline    = 30 * time.Second // of a Source without Deadline
)

// Risk names a setting that New refuses because it can lose or repeat effects, see Config.AcceptedRisks.
type Risk = risks.Risk

// The risks that can be accepted.
const (
	// RiskShortWindow: the Processor forgets keys while the sender may still deliver an event again. A late delivery
	// then runs again, or is parked as unprovable.
	RiskShortWindow Risk = "RiskShortWindow"

	// RiskUntimedInline: events without a signed time are handled while the sender waits. Their age is unknown, so an
	// event whose handler fails is not parked before the sender gives up: it is lost then. And a captured delivery runs
	// again when it is sent after the Processor's window.
	RiskUntimedInline Risk = "RiskUntimedInline"

	// RiskSmallBody: Config.MaxBody is below the size of the sender's largest delivery. Larger deliveries are answered
	// with 413, and lost if the sender does not repeat them, or gives up.
	RiskSmallBody Risk = "RiskSmallBody"
)

// Config configures a Receiver.
type Config struct {
	// Verifier checks deliveries and reads their events, such as that of stripehook or githubhook. Required.
	Verifier Verifier

	// Processor handles the events: a consumer.Consumer whose Config.Key is consumer.MessageID, or an Inbox. New calls
	// a Consumer's Key once, with a message that has a Topic and an ID only. If it finds no key there, events without a
	// key are answered with 503 until it has found the key of one, because it is probably meant for another source.
	// After that, and with a Key that does without the payload from the start, they are parked. Its Window must be at
	// least Source.Horizon. It should park: without a dead letter, an event that it gives up is answered with 500 until
	// the sender stops. Required.
	Processor driver.BatchProcessor

	// PublicURL is the beginning of the endpoint's URL as the sender knows it, such as "https://shop.example", or with
	// the path that a proxy removes. The request's path and query are appended. Only verifiers that check signatures
	// over the URL need it.
	//
	// Defaults to none.
	PublicURL string

	// MaxBody is the maximum size of a delivery in bytes. Larger ones are answered with 413, before they are read if
	// they declare their size, and are lost if their sender does not repeat them. A limit below the Source's needs
	// RiskSmallBody.
	//
	// Defaults to the Source's MaxBody, and without one to DefaultMaxBody.
	MaxBody int64

	// MaxInFlight is how many bytes the bodies of all deliveries in work may have in memory. The minimum is twice
	// MaxBody. A delivery that finds no room waits until ReadTimeout has passed, and is then answered with 503 and
	// Retry-After. A body takes room as it arrives, and keeps it until its handlers have returned. What a Verifier, a
	// Processor and handlers make of a body comes on top of it.
	//
	// Defaults to DefaultMaxInFlight, or to 6 times MaxBody if that is more.
	MaxInFlight int64

	// ReadTimeout is how long reading the body may take, from the moment when the handler is called. It needs a
	// ResponseWriter that supports http.ResponseController.SetReadDeadline, as that of net/http does, and replaces
	// http.Server.ReadTimeout. Set http.Server.ReadHeaderTimeout, which limits the headers.
	//
	// Defaults to DefaultReadTimeout, or to the time for an answer if that is shorter.
	ReadTimeout time.Duration

	// RefusalStatus is the status for a delivery that the Verifier refuses: 400, 401 or 403.
	//
	// Defaults to 400.
	RefusalStatus int

	// AcceptedRisks may contain RiskShortWindow, RiskUntimedInline and RiskSmallBody.
	//
	// Defaults to none.
	AcceptedRisks []Risk

	// Logger gets one line for each delivery that was not accepted, and one for each dropped event. Of the deliveries
	// that were refused for the same reason it gets one a second at most.
	//
	// Defaults to slog.Default().
	Logger *slog.Logger

	// Trace has hooks for metrics and spans of deliveries and events.
	//
	// Defaults to no hooks.
	Trace *Trace
}

// forwarder is an Inbox, of any transaction type.
type forwarder interface{ forwards() }

// withDefaults returns c with its defaults and the Source of its Verifier, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, Source, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("webhook: Config."+format, args...))
	}
	var source Source
	if isNil(c.Verifier) {
		refuse("Verifier is required, and must not be a nil pointer")
	} else {
		source = c.Verifier.Source()
		if err := source.validate(); err != nil {
			refuse("Verifier: %T: %w", c.Verifier, err)
		}
	}
	if isNil(c.Processor) {
		refuse("Processor is required, and must not be a nil pointer")
	}
	if w, ok := c.Processor.(driver.Windowed); ok && !isNil(c.Processor) && w.Window() < source.Horizon &&
		!slices.Contains(c.AcceptedRisks, RiskShortWindow) {
		refuse("Processor forgets keys after %s, but %s may deliver an event again for %s: a late delivery would run again; "+
			"set the Window of the consumer or Inbox to that or longer, or accept webhook.RiskShortWindow (AcceptedRisks)", days.Text(w.Window()), source.Name, days.Text(source.Horizon))
	}
	if _, forwards := c.Processor.(forwarder); !forwards && !isNil(c.Processor) && !isNil(c.Verifier) &&
		source.GiveUpAfter == 0 && !slices.Contains(c.AcceptedRisks, RiskUntimedInline) {
		refuse("Processor handles events while the sender waits, but %s signs no time: an event whose handler fails could not be parked before the sender gives up; "+
			"use an Inbox (NewInbox), or accept webhook.RiskUntimedInline (AcceptedRisks)", source.Name)
	}
	if err := checkPublicURL(c.PublicURL); err != nil {
		refuse("PublicURL is %q: %w", c.PublicURL, err)
	}
	if c.MaxBody < 0 {
		refuse("MaxBody is %d: want 1 or more", c.MaxBody)
	}
	if c.MaxBody > 0 && c.MaxBody < source.MaxBody && !slices.Contains(c.AcceptedRisks, RiskSmallBody) {
		refuse("MaxBody is %d, but deliveries of %s have up to %d bytes: larger ones would be lost; leave it out, or accept webhook.RiskSmallBody (AcceptedRisks)",
			c.MaxBody, source.Name, source.MaxBody)
	}
	if most := c.largest(source); c.MaxInFlight != 0 && c.MaxInFlight < 2*most {
		refuse("MaxInFlight is %d: want %d or more, twice the size of the largest body", c.MaxInFlight, 2*most)
	}
	if c.ReadTimeout < 0 {
		refuse("ReadTimeout is %v: want more than 0", c.ReadTimeout)
	}
	if !slices.Contains([]int{0, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden},
		c.RefusalStatus) {
		refuse("RefusalStatus is %d: want 400, 401 or 403; senders take others for success, a redirect or the end of a subscription", c.RefusalStatus)
	}
	if err := risks.Check(c.AcceptedRisks, RiskShortWindow, RiskUntimedInline, RiskSmallBody); err != nil {
		refuse("%w", err)
	}
	source.Deadline = cmp.Or(source.Deadline, DefaultDeadline)
	c.MaxBody = c.largest(source)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, max(DefaultMaxInFlight, 6*c.MaxBody))
	c.ReadTimeout = cmp.Or(c.ReadTimeout, DefaultReadTimeout)
	c.ReadTimeout = min(c.ReadTimeout, source.answerWithin())
	c.RefusalStatus = cmp.Or(c.RefusalStatus, http.StatusBadRequest)
	c.Logger = usercode.Logger(c.Logger)
	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	c.Trace = c.Trace.complete(&hooks.Panics{Logger: c.Logger.With("source", source.Name), Owner: "webhook"})
	return c, source, errors.Join(wrong...)
}

// largest returns the maximum size of a delivery.
func (c Config) largest(source Source) int64 {
	return cmp.Or(c.MaxBody, source.MaxBody, DefaultMaxBody)
}

func (s Source) validate() error {
	switch {
	case s.Name == "":
		return errors.New("Source.Name is empty")
	case s.Horizon <= 0:
		return fmt.Errorf("Source.Horizon is %v: want how long the sender may deliver an event again", s.Horizon)
	case s.Deadline < 0:
		return fmt.Errorf("Source.Deadline is %v: want more than 0, or 0 for %v", s.Deadline, DefaultDeadline)
	case s.MaxBody < 0:
		return fmt.Errorf("Source.MaxBody is %d: want 1 or more, or 0 for %d", s.MaxBody, DefaultMaxBody)
	case s.GiveUpAfter < 0:
		return fmt.Errorf("Source.GiveUpAfter is %v: want more than 0, or 0 for events without a signed time",
			s.GiveUpAfter)
	}
	return s.Reply.validate()
}

// validate refuses statuses that mean something else than success. 3xx would send the event elsewhere, and 410 ends
// subscriptions.
func (r Reply) validate() error {
	if r.Status != 0 && (r.Status < 200 || r.Status > 299) {
		return fmt.Errorf("Reply.Status is %d: want 2xx", r.Status)
	}
	return nil
}

// answerWithin is how long after the beginning of a request the response comes at the latest. The rest of Deadline is
// for the network.
func (s Source) answerWithin() time.Duration {
	return s.Deadline - min(max(s.Deadline/10, 200*time.Millisecond), s.Deadline/2)
}

func checkPublicURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return err
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return errors.New("want https:// and a host")
	case u.User != nil, strings.ContainsAny(text, "?#"):
		return errors.New("want no user, query or fragment: each request's own query is appended")
	}
	return nil
}
