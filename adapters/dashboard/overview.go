package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/outbox"
)

// overview is the state of everything, and what needs attention first.
type overview struct {
	Snapshot  snapshot
	Stale     time.Duration // for how long nothing could be read, so that the data is older; 0: it is new
	Attention []attention
	Consumers []consumerRow
	Topics    []topicRow
	AnyRates  bool
}

// attention is something that a person has to look at.
type attention struct {
	Urgent bool
	What   string
	Href   string // page with more; empty: none
	Alert  string // the runbook's page; empty: none
}

type consumerRow struct {
	ops.ConsumerStatus
	Letters int // of all causes
	Capped  bool
	Latest  time.Time // when a letter was parked last; zero: none is
	Rates   *rates    // nil: no worker has reported
	Reach   time.Duration
}

type topicRow struct {
	Name string
	outbox.TopicStats
}

func (d *Dashboard) overview(w http.ResponseWriter, r *http.Request) {
	d.withSnapshot(w, r, func(s snapshot) {
		d.show(w, r, http.StatusOK, "overview", "Overview",
			page{Title: "Overview", Live: "live?page=overview", Body: d.overviewOf(s)})
	})
}

func (d *Dashboard) consumers(w http.ResponseWriter, r *http.Request) {
	d.withSnapshot(w, r, func(s snapshot) {
		d.show(w, r, http.StatusOK, "consumers", "Consumers", page{Title: "Consumers", Body: d.overviewOf(s)})
	})
}

func (d *Dashboard) windows(w http.ResponseWriter, r *http.Request) {
	d.withSnapshot(w, r, func(s snapshot) {
		d.show(w, r, http.StatusOK, "windows", "Windows", page{Title: "Windows", Body: d.overviewOf(s)})
	})
}

// withSnapshot calls f, unless nothing was read yet.
func (d *Dashboard) withSnapshot(w http.ResponseWriter, r *http.Request, f func(snapshot)) {
	s, err := d.snapshots.get(r.Context())
	if err == nil && !s.Known {
		err = s.Err
	}
	if err != nil {
		d.failed(w, r, err)
		return
	}
	f(s)
}

func (d *Dashboard) overviewOf(s snapshot) overview {
	o := overview{Snapshot: s, Stale: s.stale()}
	for _, c := range s.Status.Consumers {
		row := consumerRow{ConsumerStatus: c, Reach: reach(s.Status.Now, c)}
		for _, l := range c.Letters {
			row.Letters += l.Count
			row.Capped = row.Capped || l.Capped
			if l.Latest.After(row.Latest) {
				row.Latest = l.Latest
			}
		}
		if seen, ok := s.Rates[c.Name]; ok {
			row.Rates, o.AnyRates = &seen, true
		}
		o.Consumers = append(o.Consumers, row)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Status.Outbox.Topics)) {
		o.Topics = append(o.Topics, topicRow{name, s.Status.Outbox.Topics[name]})
	}
	o.Attention = attend(s, o)
	return o
}

// TotalLetters counts the dead letters of all consumers.
func (o overview) TotalLetters() string {
	total, capped := 0, false
	for _, c := range o.Consumers {
		total, capped = total+c.Letters, capped || c.Capped
	}
	if capped {
		return number(total/1000*1000) + "+"
	}
	return number(total)
}

// LatestLetter returns when a letter was parked last; nil: there is none.
func (o overview) LatestLetter() *time.Time {
	var latest time.Time
	for _, c := range o.Consumers {
		if c.Latest.After(latest) {
			latest = c.Latest
		}
	}
	if latest.IsZero() {
		return nil
	}
	return &latest
}

// reach is how old a redelivery may be and still be recognized: as old as the horizon, or as long as keys are kept.
func reach(now time.Time, c ops.ConsumerStatus) time.Duration {
	if !c.Horizon.IsZero() {
		return now.Sub(c.Horizon)
	}
	var longest time.Duration
	for _, w := range c.Windows {
		longest = max(longest, w.Window)
	}
	return longest
}

const (
	outboxSlow   = time.Minute // as the alert OutboxStuck
	outboxStuck  = 5 * time.Minute
	freshLetter  = 15 * time.Minute // as the alert Parked
	freshRewind  = 24 * time.Hour   // as check of the command line
	sweepLagging = 24 * time.Hour   // as the alert SweepLag
	replayIdle   = time.Minute      // of a requested replay that no worker takes
)

// attend lists what needs a person, the urgent first.
func attend(s snapshot, o overview) (list []attention) {
	add := func(urgent bool, alert, href, format string, args ...any) {
		list = append(list, attention{Urgent: urgent, Alert: alert, Href: href, What: fmt.Sprintf(format, args...)})
	}
	if s.Err != nil {
		add(true, "Blind", "", "The state of the database could not be read for %s: %v. What follows is older.",
			span(o.Stale), s.Err)
	}
	queue := s.Status.Outbox
	if age := queue.PendingAge; age > outboxSlow {
		add(age > outboxStuck, "OutboxStuck", "outbox", "Outbox: the oldest unpublished message has waited for %s.",
			span(age))
	}
	if queue.Pending > 0 && len(queue.Relays) == 0 {
		add(true, "OutboxStuck", "outbox", "Outbox: %s messages are pending and no relay runs.", number(queue.Pending))
	}
	for _, t := range o.Topics {
		if t.Failing > 0 {
			add(false, "OutboxStuck", "outbox", "Outbox: topic %s fails: %s", visible(t.Name), t.Error)
		}
	}
	if n := queue.Parked + queue.Waiting; n > 0 {
		add(false, "Parked", "outbox", "Outbox: %s messages are parked or wait behind parked ones, the oldest for %s.",
			number(n), span(queue.ParkedAge))
	}
	for _, c := range o.Consumers {
		name := visible(c.Name)
		if c.Rates != nil && c.Rates.Paused != "" {
			add(true, "Paused", "consumers", "%s: paused (%s).", name, c.Rates.Paused)
		}
		if fresh := s.Status.Now.Sub(c.Latest); c.Letters > 0 && fresh < freshLetter {
			add(false, "Parked", lettersOf(c.Name), "%s: %s dead letters, the latest %s.", name,
				capped(c.Letters, ops.MaxCount), ago(fresh))
		}
	}
	for _, c := range o.Consumers {
		for _, p := range c.Positions {
			switch r := p.Rewind; {
			case r == nil || s.Status.Now.Sub(r.At) >= freshRewind:
			case !r.LostFrom.IsZero():
				add(true, "DatabaseWentBack", "consumers", "%s: the database went back %s: commits from %s to %s are lost. Send the messages of that time again from their source.",
					visible(c.Name), ago(s.Status.Now.Sub(r.At)), utc(r.LostFrom), utc(r.LostUntil))
			default:
				add(true, "DatabaseWentBack", "consumers", "%s: the database went back %s: %s messages of %s are read again, and the source had deleted %s.",
					visible(c.Name), ago(s.Status.Now.Sub(r.At)), number(p.Again), visible(p.Source), number(p.Missing))
			}
			if k := p.Suspect; k != nil {
				add(false, "", "consumers", "%s: %d processes were killed before offset %s of partition %d, %s.", visible(c.Name),
					k.Tries, number(k.Offset), k.Partition, visible(p.Source))
			}
		}
	}
	for _, h := range s.Status.Old {
		add(false, "InFlightWait", "", "A transaction has been open for %s and keeps its keys: process %d of the database, %s. Is that worker frozen?",
			span(h.Age), h.PID, visible(strings.TrimSuffix(h.State+", client "+h.Client, ", client ")))
	}
	for _, a := range s.Open {
		if (a.Kind == ops.Replay || a.Kind == ops.Repair) && a.Waiting == a.Matched &&
			s.Status.Now.Sub(a.Requested) > replayIdle {
			add(false, "", "action?id="+a.ID.String(),
				"%s: a replay of %s letters waits and no worker takes it: does a worker run Consumer.RunReplays?",
				visible(a.Consumer), number(a.Waiting))
		}
	}
	if lag := s.Status.Sweep.Lag; lag > sweepLagging {
		add(false, "SweepLag", "windows", "Expired keys were last deleted completely %s ago. This costs disk, not safety.", span(lag))
	}
	slices.SortStableFunc(list, func(a, b attention) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

func rank(a attention) int {
	if a.Urgent {
		return 0
	}
	return 1
}
