package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

// explainPage asks for a key, and shows what happened to it.
type explainPage struct {
	Consumers            []string
	Consumer, Tenant, ID string
	Time                 string
	Post                 bool // keys are hidden, so they stay out of addresses
	Search               bool // for the outbox messages of the key
	// query that explains the key again and searches the outbox; empty: it would have a hidden key
	Again       string
	Explanation *explanation
}

// explanation is what happened to one key, and what a redelivery would be told.
type explanation struct {
	ops.Explanation
	OtherContent bool // the key has a claim, and a letter with other content
	Means        string
	Events       []event
	Outbox       string // what has become of its outbox messages; empty: the form did not ask for them
}

// event is a line of the timeline.
type event struct {
	At     time.Time
	About  bool // the time is not exact
	Kind   string
	What   string
	Letter *consumer.DeadLetter
}

// explain shows a key that the form names, or the one of a dead letter.
func (d *Dashboard) explain(w http.ResponseWriter, r *http.Request) {
	p := explainPage{
		Consumer: r.FormValue("consumer"), Tenant: r.FormValue("tenant"), ID: r.FormValue("key"),
		Time: r.FormValue("time"),
	}
	p.Consumers, p.Post = d.names(r), len(d.cfg.HideKeys.Secret) > 0
	at, err := parseTime("time", p.Time)
	rec := dedup.Record{Key: dedup.Key{Consumer: p.Consumer, Tenant: p.Tenant, ID: p.ID}, Time: at}
	if err == nil && (p.ID != "" || p.Consumer != "") {
		err = rec.Validate()
	}
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	if r.FormValue("id") != "" {
		letter, err := d.findLetter(r)
		if err == nil && letter.Record.Key.ID == "" {
			err = errors.New("the dead letter has no usable key, so there is no claim to explain")
		}
		if err != nil {
			d.notFound(w, r, err)
			return
		}
		rec = letter.Record
	}
	if rec.Key.ID != "" {
		p.Explanation, err = d.explainRecord(r.Context(), rec)
		if p.Search = r.FormValue("outbox") != ""; err == nil && p.Search {
			p.Explanation.Outbox, err = d.explainOutbox(r.Context(), p.Explanation.Explanation)
		}
		if err != nil {
			d.failed(w, r, err)
			return
		}
		p.Again = p.again(r)
	}
	d.show(w, r, http.StatusOK, "explain", "Explain", page{Title: "Explain", Body: p})
}

// again returns the query of the same explanation with its outbox messages.
func (p *explainPage) again(r *http.Request) string {
	switch {
	case p.Search:
		return ""
	case r.FormValue("id") != "":
		return choice{ID: r.FormValue("id")}.Query("outbox", "1")
	case p.Post:
		return ""
	}
	return choice{Consumer: p.Consumer, Tenant: p.Tenant, Key: p.ID}.Query("time", p.Time, "outbox", "1")
}

func (d *Dashboard) explainRecord(ctx context.Context, rec dedup.Record) (*explanation, error) {
	e, err := ops.Explain(ctx, d.cfg.Store, rec.Key, ops.ExplainOptions{Time: rec.Time, Fingerprint: rec.Fingerprint})
	if err != nil {
		return nil, d.withoutKey(err, rec.Key)
	}
	return &explanation{Explanation: e, OtherContent: otherContent(e), Means: meaning(e), Events: events(e)}, nil
}

// withoutKey returns an error whose text hides a key where keys are hidden.
func (d *Dashboard) withoutKey(err error, key dedup.Key) error {
	if len(d.cfg.HideKeys.Secret) == 0 {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), key.ID, d.cfg.HideKeys.Key(key.ID)))
}

// searchTimeout limits the search for the outbox messages of a key.
const searchTimeout = 10 * time.Second

// explainOutbox says what has become of the messages that the handler of a key has enqueued. No index finds them, so it
// reads the tables of the outbox: only if somebody asks, and for one viewer at a time.
func (d *Dashboard) explainOutbox(ctx context.Context, e ops.Explanation) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var sent ops.Outgoing
	var err error
	select {
	case d.searching <- struct{}{}:
		sent, err = ops.ExplainOutbox(ctx, d.cfg.Store, e)
		<-d.searching
	case <-ctx.Done():
		err = errors.New("dashboard: another search of the outbox goes on: try again")
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("dashboard: the outbox was not searched within %v: use txonce explain with a longer --timeout (%w)", searchTimeout, err)
	}
	if err != nil {
		return "", d.withoutKey(err, e.Key)
	}
	return sent.Describe(e), nil
}

var means = map[ops.Verdict]string{
	ops.First:        "This key has no claim: a delivery would run the handler.",
	ops.Duplicate:    "The message was processed: a redelivery would be acknowledged, and its handler would not run.",
	ops.Mismatch:     "The key was used for other content: a redelivery of this content would be parked.",
	ops.Unprovable:   "The message is older than the keys that are remembered, so nobody can prove whether it has run: it would be parked.",
	ops.KnownContent: "The key has no claim, but another message has claimed an alias of a letter: a redelivery would be parked.",
	ops.Open:         "The key is that of a call to another system, and the call is not settled: a relay makes it, or it is parked: see the outbox.",
	ops.InFlight:     "A transaction that is open now holds the key: a redelivery would wait for it.",
}

// meaning says what a redelivery would meet, and why.
func meaning(e ops.Explanation) string {
	switch {
	case e.NoTenant:
		return "The consumer receives webhooks, whose keys have a tenant, such as stripe/live: without it this is another key. Nothing is known of it."
	case e.HTTP && e.Verdict == ops.Duplicate:
		return "The HTTP request was completed: a repeat gets the stored response, and its handler would not run."
	case e.HTTP && e.Verdict == ops.First:
		return "No HTTP request with this hash was completed. If the client's request has this hash, a repeat would run the handler; another secret, principal, method or target makes another hash."
	}
	if e.Verdict != ops.Duplicate {
		return means[e.Verdict]
	}
	if otherContent(e) {
		return "The content that was processed would be acknowledged, and its handler would not run. The letter has other content, which would be parked again."
	}
	if slices.ContainsFunc(e.Letters, func(l consumer.DeadLetter) bool { return !l.Settled }) {
		return "The key has a claim: a redelivery would be acknowledged, and its handler would not run. The outcome of a letter is unknown: see the letter."
	}
	if d, ok := e.ClaimedByDiscard(); ok {
		return "The message was not processed: " + d.Who +
			" has discarded its letter. A redelivery would be acknowledged, and its handler would not run."
	}
	return means[e.Verdict]
}

// otherContent reports whether the key has a claim, and a letter with other content. The verdict of such a key depends
// on the content.
func otherContent(e ops.Explanation) bool {
	return e.Verdict == ops.Duplicate && slices.ContainsFunc(e.Letters, func(l consumer.DeadLetter) bool {
		return !l.Settled && !e.Claim.Fingerprint.Matches(l.Record.Fingerprint)
	})
}

// events is the timeline, oldest first.
func events(e ops.Explanation) (events []event) {
	if !e.Claim.ExpiresAt.IsZero() {
		events = append(events, event{
			Kind: "committed", At: e.Claimed, About: true,
			What: "committed, fingerprint " + fingerprint(e.Claim.Fingerprint) + ", remembered until " +
				utc(e.Claim.ExpiresAt),
		})
	}
	for _, l := range e.Letters {
		events = append(events, event{At: l.First, Kind: "parked", What: "parked: " + string(l.Cause) + ", fingerprint " + fingerprint(l.Record.Fingerprint), Letter: &l})
	}
	for _, d := range e.Discarded {
		events = append(events, event{At: d.At, Kind: "discarded", What: "letter " + d.Letter.String() + " discarded by " + d.Who + ": " + d.Reason})
	}
	if h := e.Holder; h != nil {
		events = append(events, event{At: h.Since, Kind: "held", What: holder(h)})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro()) })
	return events
}

// holder says who holds a key.
func holder(h *ops.Holder) string {
	text := fmt.Sprintf("a transaction that holds the key began %s: process %d", ago(h.Age), h.PID)
	if h.State != "" {
		text += ", " + h.State
	}
	if h.Client != "" {
		text += ", client " + h.Client
	}
	return text
}
