package dashboard

import (
	"net/http"
	"strconv"

	"github.com/txonce/txonce/outbox"
)

// parkedShown is how many parked messages a page lists.
const parkedShown = 50

type outboxPage struct {
	overview
	Filter       outbox.ParkedFilter
	Since, Until string
	Parked       []parked
	Next         string // query of the next page; empty: this is the last
}

type parked struct {
	outbox.ParkedMessage
	Payload string // empty without the permission
}

func (d *Dashboard) outbox(w http.ResponseWriter, r *http.Request) {
	filter, err := parkedFilter(r)
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	d.withSnapshot(w, r, func(s snapshot) {
		p := outboxPage{
			overview: d.overviewOf(s), Filter: filter, Since: r.FormValue("since"),
			Until: r.FormValue("until"),
		}
		if filter.After, err = afterSeq(r); err != nil {
			d.fail(w, r, http.StatusBadRequest, err)
			return
		}
		filter.Limit = parkedShown + 1
		found, err := d.cfg.Store.Outbox().Parked(r.Context(), filter)
		if err != nil {
			d.failed(w, r, err)
			return
		}
		if len(found) > parkedShown {
			found = found[:parkedShown]
			q := choice{
				Topic: filter.Topic, Key: filter.OrderingKey, Error: filter.Error, Since: p.Since,
				Until: p.Until,
			}
			p.Next = q.Query("after", strconv.FormatInt(found[parkedShown-1].Seq, 10))
		}
		payload := d.may(r, Payload)
		for _, m := range found {
			row := parked{ParkedMessage: m}
			if payload {
				row.Payload, _ = readable(m.Payload, 4<<10)
			}
			p.Parked = append(p.Parked, row)
		}
		d.show(w, r, http.StatusOK, "outbox", "Outbox", page{Title: "Outbox", Live: "live?page=outbox", Body: p})
	})
}

func (d *Dashboard) outboxOf(s snapshot) outboxPage { return outboxPage{overview: d.overviewOf(s)} }

func parkedFilter(r *http.Request) (f outbox.ParkedFilter, err error) {
	f = outbox.ParkedFilter{Topic: r.FormValue("topic"), OrderingKey: r.FormValue("key"), Error: r.FormValue("error")}
	if f.Since, err = parseTime("since", r.FormValue("since")); err != nil {
		return f, err
	}
	f.Until, err = parseTime("until", r.FormValue("until"))
	return f, err
}

func afterSeq(r *http.Request) (int64, error) {
	n, err := whole(r, "after", 0)
	return int64(n), err
}
