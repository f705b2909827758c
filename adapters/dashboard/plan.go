package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// maxPlanned is up to where the letters of a plan are read.
const maxPlanned = 2000

// planPage is a dry run: what a replay or a discard of the chosen letters would do.
type planPage struct {
	Choice      choice
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
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	p.Key, p.AsNew, p.Rate, p.MaxFailures = q.Key, q.AsNew, q.Rate, q.MaxFailures
	if p.Plan, err = ops.PlanReplay(r.Context(), d.cfg.Store, q, maxPlanned); err != nil {
		d.failed(w, r, err)
		return
	}
	p.More, p.Letters = p.Plan.More, p.Plan.Match+p.Plan.Elsewhere
	p.Refused = slices.Sorted(maps.Keys(p.Plan.Refused))
	d.show(w, r, http.StatusOK, "plan", "Dead letters", page{Title: "Dry run", Body: p})
}
