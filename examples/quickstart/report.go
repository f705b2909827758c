package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// figures is the result of a run. With -json it is the last line.
type figures struct {
	Complete             bool    `json:"complete"`
	Messages             int     `json:"messages"`
	Deliveries           int     `json:"deliveries"`
	DuplicatesSuppressed int     `json:"duplicates_suppressed"`
	Effects              int     `json:"effects"`
	Lost                 int     `json:"lost"`
	Doubled              int     `json:"doubled"`
	MismatchesParked     int     `json:"mismatches_parked"`
	PoisonParked         int     `json:"poison_parked"`
	UnprovableParked     int     `json:"unprovable_parked"`
	Events               int     `json:"events"`
	EventsMissing        int     `json:"events_missing"`
	EventsRepublished    int     `json:"events_republished"`
	EventsOutOfOrder     int     `json:"events_out_of_order"`
	EventsWithForeignID  int     `json:"events_with_foreign_id"`
	AuditorClaims        int     `json:"auditor_claims"`
	AuditorLost          int     `json:"auditor_lost"`
	AuditorDoubled       int     `json:"auditor_doubled"`
	AuditorEventsLost    int     `json:"auditor_events_lost"`
	AuditorMeanwhile     int     `json:"auditor_meanwhile"`
	AuditorFalse         int     `json:"auditor_false"`
	Kills                int     `json:"kills"`
	Freezes              int     `json:"freezes"`
	Rebalances           int     `json:"rebalances"`
	Redelivered          int64   `json:"redelivered"`
	LongestStall         float64 `json:"longest_stall_seconds"`
	Seconds              float64 `json:"seconds"`
	PerSecond            float64 `json:"per_second"`

	Scraped *scraped `json:"scraped,omitempty"` // with -telemetry

	drained float64 // seconds after the last offset was committed
}

func newFigures(p *plan, out outcome, f findings) figures {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	seconds := out.took.Seconds()
	return figures{
		Complete:             out.complete,
		Messages:             len(p.messages),
		Deliveries:           len(p.deliveries),
		DuplicatesSuppressed: f.Suppressed,
		Effects:              f.Effects,
		Lost:                 f.Lost,
		Doubled:              f.Doubled,
		MismatchesParked:     f.MismatchesParked,
		PoisonParked:         f.PoisonParked,
		UnprovableParked:     f.UnprovableParked,
		Events:               f.Events,
		EventsMissing:        f.EventsMissing,
		EventsRepublished:    f.EventsRepublished,
		EventsOutOfOrder:     f.EventsOutOfOrder,
		EventsWithForeignID:  f.EventsWithForeignID,
		AuditorClaims:        f.Auditor.Claims,
		AuditorLost:          f.Auditor.Lost,
		AuditorDoubled:       f.Auditor.Doubled,
		AuditorEventsLost:    f.Auditor.EventsLost,
		AuditorMeanwhile:     f.Auditor.Meanwhile,
		AuditorFalse:         f.Auditor.False,
		Kills:                out.kills,
		Freezes:              out.freezes,
		Rebalances:           out.progress.rebalances(),
		Redelivered:          out.progress.redelivery,
		LongestStall:         round(out.progress.stall.Seconds()),
		Seconds:              round(seconds),
		PerSecond:            math.Round(float64(out.progress.finished()) / seconds),
		drained:              out.drained.Seconds(),
	}
}

// table formats the figures as a table.
func (f figures) table(p *plan) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int, remark string) {
		fmt.Fprintf(w, "%s\t%s\t\t%s\n", name, thousands(int64(n)), remark)
	}
	planted := func(n int) string { return fmt.Sprintf("of %s planted", thousands(int64(n))) }
	row("messages", f.Messages, fmt.Sprintf("delivered %s times", thousands(int64(f.Deliveries))))
	row("effects", f.Effects, "rows in the ledger")
	row("duplicates suppressed", f.DuplicatesSuppressed,
		fmt.Sprintf("and at least %s redelivered after kills and rebalances", thousands(f.Redelivered)))
	row("poison parked", f.PoisonParked, planted(p.poison))
	row("mismatches parked", f.MismatchesParked, planted(p.reused))
	row("unprovable parked", f.UnprovableParked, planted(0))
	row("events", f.Events, fmt.Sprintf("published, the last %.1f s after the last delivery; %s of them repeats, told by their ID",
		f.drained, thousands(int64(f.EventsRepublished))))
	row("auditor", f.AuditorClaims, fmt.Sprintf("claims compared: %d lost, %d doubled, %d without event; and %s beside the workers, with %d findings",
		f.AuditorLost, f.AuditorDoubled, f.AuditorEventsLost, thousands(int64(f.AuditorMeanwhile)), f.AuditorFalse))
	row("kills", f.Kills, fmt.Sprintf("and %d freezes; %d rebalances, longest stall %.1f s", f.Freezes, f.Rebalances,
		f.LongestStall))
	row("deliveries/s", int(f.PerSecond), fmt.Sprintf("%.1f s", f.Seconds))
	_ = w.Flush() // cannot fail: writes to memory
	return b.String() + fmt.Sprintf("lost %d, doubled %d; events missing %d, out of order %d, with a foreign ID %d",
		f.Lost, f.Doubled, f.EventsMissing, f.EventsOutOfOrder, f.EventsWithForeignID) + f.scraped()
}

// scraped compares the counters with the ledger.
func (f figures) scraped() string {
	if f.Scraped == nil {
		return ""
	}
	return fmt.Sprintf("\nscraped: %s processed of %s effects, %s duplicates, %s parked",
		thousands(int64(f.Scraped.Processed)), thousands(int64(f.Effects)),
		thousands(int64(f.Scraped.Duplicates)), thousands(int64(f.Scraped.Parked)))
}

func (f figures) line() string {
	b, _ := json.Marshal(f) // cannot fail: finite numbers
	return string(b)
}

// thousands formats 1234567 as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
