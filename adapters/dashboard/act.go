package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
)

// actTimeout limits an action that runs in this process. It goes on if the browser leaves.
const actTimeout = 5 * time.Minute

// errBadForm says that a field of a form is wrong.
type errBadForm struct{ error }

// act runs f for a request that may act, and then shows the action.
func (d *Dashboard) act(f func(ctx context.Context, r *http.Request, who string) (ops.Action, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := d.cfg.Authorize(r, Act)
		if err == nil && who == "" {
			err = errors.New("dashboard: Config.Authorize allowed Act and returned an empty name: return who acts")
		}
		if err != nil {
			d.cfg.Logger.WarnContext(r.Context(), "dashboard: an action was refused", "path", r.URL.Path, "peer",
				r.RemoteAddr, "err", err)
			d.fail(w, r, http.StatusForbidden, err)
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTimeout)
		defer cancel()
		action, err := f(ctx, r, who)
		d.snapshots.outdate()
		if bad := (errBadForm{}); errors.As(err, &bad) {
			d.fail(w, r, http.StatusBadRequest, err)
			return
		}
		if err != nil {
			d.failed(w, r, err)
			return
		}
		d.cfg.Logger.InfoContext(ctx, "dashboard: action", "action", action.ID.String(), "kind", string(action.Kind),
			"consumer", action.Consumer, "who", who, "reason", action.Reason)
		w.Header().Set("Location", "action?id="+action.ID.String()) // relative, which http.Redirect would not keep
		w.WriteHeader(http.StatusSeeOther)
	}
}

// errNoDryRun refuses a form that does not say what its user has seen. Letters and messages that arrive later would be
// chosen, too.
var errNoDryRun = errors.New("the form does not say how many were shown, or until when: begin on the page of the dry run")

// request reads what all actions on letters have in common.
func request(r *http.Request, kind ops.Kind, who string) (q ops.Request, err error) {
	q = ops.Request{Kind: kind, Who: who, Reason: strings.TrimSpace(r.PostFormValue("why")), Expect: -1}
	if q.Reason == "" {
		return q, errBadForm{errors.New("a reason is required: the next operator will want to know why")}
	}
	if q.Filter, err = choiceOf(r).filter(); err != nil {
		return q, errBadForm{err}
	}
	q.Expect, err = expected(r)
	return q, err
}

// expected reads the number that a dry run has shown; -1: it has shown that there are more than it counts.
func expected(r *http.Request) (int, error) {
	n, err := whole(r, "expect", -1)
	if err != nil {
		return n, errBadForm{err}
	}
	return n, nil
}

func (d *Dashboard) replay(ctx context.Context, r *http.Request, who string) (ops.Action, error) {
	q, err := request(r, ops.Replay, who)
	if err != nil {
		return ops.Action{}, err
	}
	if q, err = replayFields(r, q); err != nil {
		return ops.Action{}, err
	}
	if q.Expect < 0 && q.Filter.Until.IsZero() {
		return ops.Action{}, errBadForm{errNoDryRun}
	}
	return d.cfg.Store.Request(ctx, q)
}

// replayFields reads the fields that only a replay has.
func replayFields(r *http.Request, q ops.Request) (ops.Request, error) {
	q.Key, q.AsNew = r.FormValue("new_key"), r.FormValue("as_new") != ""
	var err error
	if q.MaxFailures, err = whole(r, "max_failures", 0); err != nil {
		return q, errBadForm{err}
	}
	if s := strings.TrimSpace(r.FormValue("rate")); s != "" {
		if q.Rate, err = strconv.ParseFloat(s, 64); err != nil || q.Rate < 0 || q.Rate > 1e6 {
			return q, errBadForm{fmt.Errorf("rate is %q: want letters a second", s)}
		}
	}
	if err := q.Validate(); q.Reason != "" && err != nil {
		return q, errBadForm{err}
	}
	return q, nil
}

func (d *Dashboard) discard(ctx context.Context, r *http.Request, who string) (ops.Action, error) {
	q, err := request(r, ops.Discard, who)
	if err != nil {
		return ops.Action{}, err
	}
	if q.Expect < 0 {
		return ops.Action{}, errBadForm{errNoDryRun}
	}
	return ops.DiscardLetters(ctx, d.cfg.Store, q)
}

func (d *Dashboard) end(ctx context.Context, r *http.Request, who string) (ops.Action, error) {
	id, err := ops.ParseActionID(r.PostFormValue("id"))
	why := strings.TrimSpace(r.PostFormValue("why"))
	if err == nil && why == "" {
		err = errors.New("a reason is required")
	}
	if err != nil {
		return ops.Action{}, errBadForm{err}
	}
	return d.cfg.Store.End(ctx, id, "ended by "+who+": "+why)
}

// repairOutbox unparks or discards the chosen parked messages, or all that a dry run has shown.
func (d *Dashboard) repairOutbox(ctx context.Context, r *http.Request, who string) (ops.Action, error) {
	q := ops.Request{Who: who, Reason: strings.TrimSpace(r.PostFormValue("why")), Expect: -1}
	if q.Reason == "" {
		return ops.Action{}, errBadForm{errors.New("a reason is required: the next operator will want to know why")}
	}
	switch r.PostFormValue("do") {
	case "unpark":
		q.Kind = ops.Unpark
	case "discard":
		q.Kind = ops.DiscardOutbox
	default:
		return ops.Action{}, errBadForm{fmt.Errorf("do is %q: want unpark or discard", r.PostFormValue("do"))}
	}
	if r.PostFormValue("all") != "" {
		return d.repairAll(ctx, r, q)
	}
	seqs, err := chosenSeqs(r.PostForm["seq"])
	if err != nil {
		return ops.Action{}, errBadForm{err}
	}
	q.Note = "messages of the outbox " + strings.Join(r.PostForm["seq"], ", ")
	action, n, err := ops.ChangeMessages(ctx, d.cfg.Store, q, seqs)
	if err == nil && n < len(seqs) {
		err = fmt.Errorf("%w: %d of the %d chosen messages were changed; the others are not parked any more", errStale,
			n, len(seqs))
	}
	return action, err
}

// repairAll changes the parked messages that a dry run has shown. The form says when the latest of them was parked, and
// how many they are.
func (d *Dashboard) repairAll(ctx context.Context, r *http.Request, q ops.Request) (ops.Action, error) {
	filter, err := parkedFilter(r)
	if err != nil {
		return ops.Action{}, errBadForm{err}
	}
	if q.Expect, err = expected(r); err != nil {
		return ops.Action{}, err
	}
	switch {
	case filter.Until.IsZero(), q.Kind == ops.DiscardOutbox && q.Expect < 0:
		return ops.Action{}, errBadForm{errNoDryRun}
	case q.Kind == ops.DiscardOutbox && filter == outbox.ParkedFilter{Until: filter.Until}:
		return ops.Action{}, errBadForm{errWide}
	}
	action, n, err := ops.ChangeParked(ctx, d.cfg.Store, q, filter)
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: no parked message matches the filter any more", errStale)
	}
	return action, err
}

// errStale says that a page showed what has changed meanwhile.
var errStale = errors.New("the list was outdated")

func chosenSeqs(texts []string) (seqs []int64, err error) {
	for _, s := range texts {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("seq is %q: want a number", s)
		}
		seqs = append(seqs, n)
	}
	if len(seqs) == 0 {
		return nil, errors.New("no message is chosen: tick those that are meant")
	}
	return slices.Compact(slices.Sorted(slices.Values(seqs))), nil
}
