package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// maxPlanned is up to where the letters of a plan are read.
const maxPlanned = 1000

// planPage is a dry run: what a replay or a discard of the chosen letters would do.
type planPage struct {
	Choice      choice
	Shown       choice // what the forms choose: no letter that was parked after those that the plan has read
	Plan        ops.ReplayPlan
	Letters     int  // that the filter chooses, up to maxPlanned
	More        bool // than maxPlanned
	Refused     []observe.Cause
	Key         string
	AsNew       bool
	Rate        float64
	MaxFailures int
}

func (d *Dashboard) plan(w http.ResponseWriter, r *http.Request) {
	p := planPage{Choice: choiceOf(r)}
	filter, err := p.Choice.filter()
	if err == nil && p.Choice.Consumer == "" && p.Choice.ID == "" {
		err = errors.New("choose a consumer first: workers replay the letters of their own consumer")
	}
	q := ops.Request{Kind: ops.Replay, Who: "plan", Filter: filter, Expect: -1}
	if err == nil {
		q, err = replayFields(r, q)
	}
	if !r.Form.Has("max_failures") {
		q.MaxFailures = ops.DefaultMaxFailures
	}
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	p.Key, p.AsNew, p.Rate, p.MaxFailures = q.Key, q.AsNew, q.Rate, q.MaxFailures
	if p.Plan, err = ops.PlanReplay(r.Context(), d.cfg.Store, q, maxPlanned); err != nil {
		d.failed(w, r, err)
		return
	}
	p.Shown = p.Choice
	p.Shown.Until = until(p.Plan.Newest)
	p.More, p.Letters = p.Plan.More, p.Plan.Match+p.Plan.Elsewhere
	p.Refused = slices.Sorted(maps.Keys(p.Plan.Refused))
	d.show(w, r, http.StatusOK, "plan", "Dead letters", page{Title: "Dry run", Body: p})
}

// until returns the bound for a form: what was parked at newest or before is chosen, and nothing later.
func until(newest time.Time) string {
	return newest.Add(time.Microsecond).UTC().Format(time.RFC3339Nano)
}

// parkedPlan is a dry run: which parked messages of the outbox an action would change.
type parkedPlan struct {
	Filter       outbox.ParkedFilter
	Since, Until string
	Count        int    // of messages, up to maxPlanned
	More         bool   // than maxPlanned
	Bound        string // what the forms choose was parked before
	Narrow       bool   // the filter may be used to discard
}

func (d *Dashboard) parkedPlan(w http.ResponseWriter, r *http.Request) {
	filter, err := parkedFilter(r)
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	chosen, err := ops.ChooseParked(r.Context(), d.cfg.Store, filter, maxPlanned)
	newest := chosen.Newest
	if err == nil && chosen.More { // they are read by number, so that a later one may have been parked earlier
		var s snapshot
		if s, err = d.snapshots.get(r.Context()); err == nil && !s.Known {
			err = s.Err
		}
		newest = s.Status.Now
	}
	if err != nil {
		d.failed(w, r, err)
		return
	}
	p := parkedPlan{
		Filter: filter, Since: r.FormValue("since"), Until: r.FormValue("until"), Count: len(chosen.Seqs),
		More: chosen.More, Bound: until(newest),
	}
	p.Narrow = filter != outbox.ParkedFilter{Until: filter.Until}
	d.show(w, r, http.StatusOK, "parked", "Outbox", page{Title: "Dry run", Body: p})
}

// errWide refuses to discard everything that is parked.
var errWide = errors.New("choose a topic, a key, a part of the error or a time since when first: without it all parked messages would be deleted")
