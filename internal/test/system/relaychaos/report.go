//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// figures is the result of a run. With -json it is the last line.
type figures struct {
	OK             bool   `json:"ok"`
	Broken         string `json:"broken,omitempty"`
	Seed           uint64 `json:"seed"`
	Keys           int    `json:"keys"`
	Committed      int    `json:"committed"`
	RolledBack     int64  `json:"rolled_back"` // executions that had enqueued and were rolled back
	Refused        int    `json:"refused"`     // those of them that always fail
	Publications   int    `json:"publications"`
	Missing        int    `json:"missing"`
	Phantom        int    `json:"phantom"`
	OutOfOrder     int    `json:"out_of_order"`
	Altered        int    `json:"altered"`
	Repeats        int    `json:"repeats"`
	RepeatsAllowed int    `json:"repeats_allowed"`
	Batch          int    `json:"batch"`   // the largest number of messages that a worker leases at once
	Workers        int    `json:"workers"` // per relay
	Pending        int64  `json:"pending"`
	Kills          int    `json:"kills"`
	Pauses         int    `json:"pauses"`
	// kills and pauses that certainly hit a relay with leased messages
	InPublish    int     `json:"faults_in_publish"`
	LeaseSeconds float64 `json:"lease_seconds"`
	Seconds      float64 `json:"seconds"`

	findings findings
	asked    options
}

func newFigures(o options, p *plan, f findings, t tally, rolled, pending int64, took time.Duration) *figures {
	x := &figures{
		Broken: o.broken, Seed: o.seed, Keys: o.keys,
		Committed: f.Committed, RolledBack: rolled, Refused: p.refused,
		Publications: f.Publications, Missing: f.Missing, Phantom: f.Phantom, OutOfOrder: f.OutOfOrder,
		Altered: f.Altered,
		Repeats: f.Repeats, RepeatsAllowed: (t.kills + t.pauses) * o.batch * workers, Batch: o.batch, Workers: workers,
		Pending: pending, Kills: t.kills, Pauses: t.pauses, InPublish: t.inPublish,
		LeaseSeconds: o.lease.Seconds(), Seconds: math.Round(took.Seconds()*10) / 10,
		findings: f, asked: o,
	}
	x.OK = x.Committed == o.messages && x.Missing == 0 && x.Phantom == 0 && x.OutOfOrder == 0 && x.Altered == 0 &&
		x.Repeats <= x.RepeatsAllowed && x.Pending == 0 && x.Kills >= o.kills && x.Pauses >= o.pauses
	return x
}

// table formats the figures as a table.
func (x *figures) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int64, remark string, args ...any) {
		fmt.Fprintf(w, "%s\t%d\t\t%s\n", name, n, fmt.Sprintf(remark, args...))
	}
	row("committed", int64(x.Committed), "messages of %d keys, of %d requested", x.Keys, x.asked.messages)
	row("rolled back", x.RolledBack, "executions that had enqueued; %d of them always fail", x.Refused)
	row("published", int64(x.Publications), "records in the topic")
	row("repeats", int64(x.Repeats), "at most %d allowed: %d faults x %d workers x %d messages leased",
		x.RepeatsAllowed, x.Kills+x.Pauses, x.Workers, x.Batch)
	row("kills", int64(x.Kills), "of %d requested, each while the relay held a lease", x.asked.kills)
	row("pauses", int64(x.Pauses), "of %d requested, each longer than the lease of %v that the relay held",
		x.asked.pauses, x.asked.lease)
	row("in publish", int64(x.InPublish), "of these faults certainly hit leased messages")
	row("pending", x.Pending, "left in the database, after %.0f s", x.Seconds)
	_ = w.Flush() // cannot fail: writes to memory
	for _, problem := range x.findings.Problems {
		fmt.Fprintf(&b, "  %s\n", problem)
	}
	fmt.Fprintf(&b, "missing %d, phantom %d, out of order %d, altered %d\n", x.Missing, x.Phantom, x.OutOfOrder,
		x.Altered)
	return b.String()
}

func (x *figures) line() string {
	b, _ := json.Marshal(x) // cannot fail: finite numbers
	return string(b)
}
