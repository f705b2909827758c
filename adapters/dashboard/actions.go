package dashboard

import (
	"net/http"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

const (
	actionsShown = 50
	resultsShown = 100
)

type actionList struct {
	Actions []ops.Action
	Next    string // the next page begins before this time; empty: this is the last
}

func (d *Dashboard) actions(w http.ResponseWriter, r *http.Request) {
	before, err := parseTime("before", r.FormValue("before"))
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	list := actionList{}
	if list.Actions, err = d.cfg.Store.Actions(r.Context(),
		ops.ActionFilter{Before: before, Limit: actionsShown}); err != nil {
		d.failed(w, r, err)
		return
	}
	if len(list.Actions) == actionsShown {
		list.Next = list.Actions[actionsShown-1].Requested.UTC().Format(time.RFC3339Nano)
	}
	d.show(w, r, http.StatusOK, "actions", "Actions", page{Title: "Actions", Body: list})
}

type actionPage struct {
	ops.Action
	Outcomes []outcomeCount
	Results  []ops.Result  // those that failed
	Idle     bool          // no worker has taken a letter for a while
	Stale    time.Duration // for how long nothing could be read, so that this is older; 0: it is new
}

type outcomeCount struct {
	Outcome observe.Outcome
	Count   int
	Means   string
}

func (d *Dashboard) action(w http.ResponseWriter, r *http.Request) {
	a, now, err := d.findAction(r)
	if err != nil {
		d.failed(w, r, err)
		return
	}
	p := actionPageOf(a, now)
	if p.Results, err = d.cfg.Store.Results(r.Context(),
		ops.ResultFilter{Action: p.ID, Outcome: observe.Parked, Limit: resultsShown}); err != nil {
		d.failed(w, r, err)
		return
	}
	live := ""
	if p.Ended.IsZero() {
		live = "live?page=action&id=" + p.ID.String()
	}
	d.show(w, r, http.StatusOK, "action", "Actions", page{Title: "Action", Live: live, Body: p})
}

// findAction reads the action that a request names, and the time.
func (d *Dashboard) findAction(r *http.Request) (a ops.Action, now time.Time, err error) {
	id, err := ops.ParseActionID(r.FormValue("id"))
	if err != nil {
		return a, now, ops.ErrNoAction
	}
	found, err := d.cfg.Store.Actions(r.Context(), ops.ActionFilter{ID: id})
	if err == nil && len(found) == 0 {
		err = ops.ErrNoAction
	}
	if err != nil {
		return a, now, err
	}
	s, err := d.snapshots.get(r.Context())
	return found[0], s.Status.Now, err
}

// liveAction finds an action in the snapshot that all viewers share. One that has ended is not there.
func (d *Dashboard) liveAction(r *http.Request, s snapshot) (actionPage, error) {
	for _, a := range s.Open {
		if a.ID.String() == r.FormValue("id") {
			p := actionPageOf(a, s.Status.Now)
			p.Stale = s.stale()
			return p, nil
		}
	}
	a, now, err := d.findAction(r)
	return actionPageOf(a, now), err
}

func actionPageOf(a ops.Action, now time.Time) actionPage {
	p := actionPage{Action: a}
	p.Idle = (a.Kind == ops.Replay || a.Kind == ops.Repair) && a.Ended.IsZero() && a.Waiting == a.Matched &&
		now.Sub(a.Requested) > replayIdle
	for _, o := range []outcomeCount{
		{Outcome: observe.Processed, Means: "the handler ran and its effects are committed"},
		{Outcome: observe.Duplicate, Means: "was processed meanwhile; the letter is removed"},
		{Outcome: observe.Parked, Means: "failed again; the letter stays"},
		{Outcome: observe.Rejected, Means: "discarded"},
		{Outcome: observe.Held, Means: "not tried before the action ended; the letter stays"},
	} {
		if o.Count = a.Results[o.Outcome]; o.Count > 0 {
			p.Outcomes = append(p.Outcomes, o)
		}
	}
	return p
}
