package cli

import (
	"time"

	"github.com/txonce/txonce/consumer/ops"
)

type statusObject struct {
	version
	Database  string           `json:"database"`
	Schema    int              `json:"schema"`
	Now       time.Time        `json:"now"`
	Consumers []consumerObject `json:"consumers"`
	Outbox    outboxObject     `json:"outbox"`
	Sweep     sweepObject      `json:"sweep"`
}

type consumerObject struct {
	Name      string            `json:"name"`
	Paused    string            `json:"paused,omitempty"` // the cause
	Letters   map[string]int    `json:"letters"`          // by cause
	Capped    bool              `json:"letters_capped"`
	Waiting   int               `json:"letters_waiting"`
	Horizon   *time.Time        `json:"horizon"`
	Windows   []windowObject    `json:"windows"`
	Sources   []sourceObject    `json:"sources"`
	Positions []positionsObject `json:"positions"`
	Reports   bool              `json:"pauses_reported"` // false: nothing is known about pauses
}

type windowObject struct {
	Seconds   int64      `json:"seconds"`
	FirstRun  *time.Time `json:"first_run"`
	UsedUntil *time.Time `json:"used_until"`
}

type sourceObject struct {
	Name     string     `json:"name"`
	FirstRun *time.Time `json:"first_run"`
}

type outboxObject struct {
	Pending          int64                  `json:"pending"`
	Delayed          int64                  `json:"delayed"`
	Parked           int64                  `json:"parked"`
	Waiting          int64                  `json:"waiting"`
	Failing          int64                  `json:"failing"`
	OldestAgeSeconds float64                `json:"oldest_age_seconds"`
	ParkedAgeSeconds float64                `json:"parked_age_seconds"`
	Error            string                 `json:"error,omitempty"`
	Estimated        bool                   `json:"estimated,omitempty"`
	Topics           map[string]outboxTopic `json:"topics,omitempty"`
	Relays           []relayObject          `json:"relays,omitempty"`
}

type outboxTopic = outboxObject

type relayObject struct {
	Name   string    `json:"name"`
	Shards int       `json:"shards"`
	Until  time.Time `json:"until"`
}

type sweepObject struct {
	LastPass   *time.Time `json:"last_pass"`
	LagSeconds float64    `json:"lag_seconds"`
	Active     bool       `json:"active"`
	Forgotten  *time.Time `json:"forgotten"`
	Keys       int64      `json:"keys"` // negative: unknown
}

func statusJSON(db *Database, s ops.Status, p pauses) statusObject {
	o := statusObject{
		version: v1(), Database: db.Dialect, Schema: s.Schema, Now: s.Now.UTC(), Consumers: []consumerObject{},
		Sweep: sweepObject{
			jsonTime(s.Sweep.LastPass), s.Sweep.Lag.Seconds(), s.Sweep.LeaseUntil.After(s.Now),
			jsonTime(s.Sweep.Forgotten), s.Sweep.Keys,
		},
		Outbox: outboxObject{
			Pending: s.Outbox.Pending, Delayed: s.Outbox.Delayed, Parked: s.Outbox.Parked, Waiting: s.Outbox.Waiting,
			Estimated:        s.Outbox.Estimated,
			OldestAgeSeconds: s.Outbox.PendingAge.Seconds(), ParkedAgeSeconds: s.Outbox.ParkedAge.Seconds(),
			Topics: map[string]outboxTopic{},
		},
	}
	for _, c := range s.Consumers {
		co := consumerObject{
			Name: c.Name, Paused: string(p.causes[c.Name]), Reports: p.reported[c.Name],
			Letters: map[string]int{}, Waiting: c.Waiting, Horizon: jsonTime(c.Horizon), Windows: []windowObject{},
			Sources: []sourceObject{}, Positions: positionsJSON(c.Positions),
		}
		for _, l := range c.Letters {
			co.Letters[string(l.Cause)], co.Capped = l.Count, co.Capped || l.Capped
		}
		for _, w := range c.Windows {
			co.Windows = append(co.Windows, windowObject{
				int64(w.Window / time.Second), jsonTime(w.FirstRun),
				jsonTime(w.UsedUntil),
			})
		}
		for _, source := range c.Sources {
			co.Sources = append(co.Sources, sourceObject{source.Name, jsonTime(source.FirstRun)})
		}
		o.Consumers = append(o.Consumers, co)
	}
	for name, t := range s.Outbox.Topics {
		o.Outbox.Failing += t.Failing
		o.Outbox.Topics[name] = outboxTopic{
			Pending: t.Pending, Delayed: t.Delayed, Parked: t.Parked, Waiting: t.Waiting, Failing: t.Failing,
			Error:            t.Error,
			OldestAgeSeconds: t.PendingAge.Seconds(), ParkedAgeSeconds: t.ParkedAge.Seconds(),
		}
	}
	for _, r := range s.Outbox.Relays {
		o.Outbox.Relays = append(o.Outbox.Relays, relayObject{r.Name, r.Shards, r.Until.UTC()})
	}
	return o
}
