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
	Explanation          *explanation
}

// explanation is what happened to one key, and what a redelivery would be told.
type explanation struct {
	ops.Explanation
	Means  string
	Events []event
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
	p := explainPage{Consumer: r.FormValue("consumer"), Tenant: r.FormValue("tenant"), ID: r.FormValue("key"), Time: r.FormValue("time")}
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
		if p.Explanation, err = d.explainRecord(r.Context(), rec); err != nil {
			d.failed(w, r, err)
			return
		}
	}
	d.show(w, r, http.StatusOK, "explain", "Explain", page{Title: "Explain", Body: p})
}

func (d *Dashboard) explainRecord(ctx context.Context, rec dedup.Record) (*explanation, error) {
	e, err := ops.Explain(ctx, d.cfg.Store, rec.Key, ops.ExplainOptions{Time: rec.Time, Fingerprint: rec.Fingerprint})
	if err != nil && len(d.cfg.HideKeys.Secret) > 0 {
		err = errors.New(strings.ReplaceAll(err.Error(), rec.Key.ID, d.cfg.HideKeys.Key(rec.Key.ID)))
	}
	if err != nil {
		return nil, err
	}
	return &explanation{e, means[e.Verdict], events(e)}, nil
}

var means = map[ops.Verdict]string{
	ops.First:      "This key has no claim: a delivery would run the handler.",
	ops.Duplicate:  "The message was processed: a redelivery would be acknowledged, and its handler would not run.",
	ops.Mismatch:   "The key was used for other content: a redelivery of this content would be parked.",
	ops.Unprovable: "The message is older than the keys that are remembered, so nobody can prove whether it has run: it would be parked.",
	ops.InFlight:   "A transaction that is open now holds the key: a redelivery would wait for it.",
}

// events is the timeline, oldest first.
func events(e ops.Explanation) (events []event) {
	if !e.Claim.ExpiresAt.IsZero() {
		events = append(events, event{
			Kind: "committed", At: e.Claimed, About: true,
			What: "committed, fingerprint " + fingerprint(e.Claim.Fingerprint) + ", remembered until " + utc(e.Claim.ExpiresAt),
		})
	}
	for _, l := range e.Letters {
		events = append(events, event{At: l.First, Kind: "parked", What: "parked: " + string(l.Reason) + ", fingerprint " + fingerprint(l.Record.Fingerprint), Letter: &l})
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
