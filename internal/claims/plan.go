package claims

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Row is one row to claim. It holds the first Record of its key in the call.
type Row struct {
	KeyHash dedup.KeyHash
	Record  dedup.Record // Time is rounded up to whole microseconds, the precision of the databases; see Ceil
}

// Plan maps the records of a call to the rows to claim.
type Plan struct {
	Rows []Row // each key once, sorted by KeyHash: all transactions lock in one order, so they do not deadlock

	recs []dedup.Record
	row  []int // row[i] is the index in Rows of the row for recs[i]
}

// NewPlan validates recs and sorts the distinct keys into Rows. It does not change recs.
func NewPlan(recs []dedup.Record) (*Plan, error) {
	p := &Plan{Rows: make([]Row, 0, len(recs)), recs: recs, row: make([]int, len(recs))}
	if len(recs) == 1 { // most claims have one record
		rec := recs[0]
		if err := rec.Validate(); err != nil {
			return nil, err
		}
		rec.Time = Ceil(rec.Time)
		p.Rows = append(p.Rows, Row{KeyHash: rec.Key.Hash(), Record: rec})
		return p, nil
	}
	hashes := make([]dedup.KeyHash, len(recs))
	order := make([]int, len(recs)) // indices of recs; sorting them is cheaper than sorting records
	for i, rec := range recs {
		if err := rec.Validate(); err != nil {
			return nil, err
		}
		hashes[i], order[i] = rec.Key.Hash(), i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(hashes[i].Compare(hashes[j]), i-j) })
	for at, i := range order {
		rec := recs[i]
		if at > 0 && hashes[order[at-1]] == hashes[i] {
			if first := p.Rows[len(p.Rows)-1].Record.Key; first != rec.Key {
				return nil, Collision(rec.Key, first)
			}
		} else {
			rec.Time = Ceil(rec.Time)
			p.Rows = append(p.Rows, Row{KeyHash: hashes[i], Record: rec})
		}
		p.row[i] = len(p.Rows) - 1
	}
	return p, nil
}

// Windows returns the windows that must be registered before the rows are claimed. Each occurs once. They are sorted,
// so that all transactions lock them in one order.
func (p *Plan) Windows() []Window {
	ws := make([]Window, 0, 1)
	for _, row := range p.Rows {
		w := WindowOf(row.Record)
		if !slices.Contains(ws, w) {
			ws = append(ws, w)
		}
	}
	slices.SortFunc(ws, Window.Compare)
	return ws
}

// Redelivered reports whether all rows have probably been claimed before.
func (p *Plan) Redelivered() bool {
	return !slices.ContainsFunc(p.Rows, func(row Row) bool { return !row.Record.Redelivered })
}

// Answers returns the answer for each record. found[i] is the answer for Rows[i]: its Verdict, and the row as it is in
// the table now, even if this claim inserted it. When a key occurs several times in the call, only its first record can
// be First. Later ones get the answer that a later call would get. If the first record is Unprovable, so are the
// others, because nothing was claimed.
func (p *Plan) Answers(found []dedup.Claim) []dedup.Claim {
	answers := make([]dedup.Claim, len(p.recs))
	taken := make([]bool, len(found))
	for i, rec := range p.recs {
		j := p.row[i]
		c := found[j]
		switch {
		case c.Verdict == dedup.Unprovable:
			c = dedup.Claim{Verdict: dedup.Unprovable}
		case c.Verdict == dedup.First && !taken[j]:
			c = dedup.Claim{Verdict: dedup.First}
		default:
			c.Verdict = Known(rec, c)
		}
		taken[j] = true
		answers[i] = c
	}
	return answers
}

// Known returns the verdict on rec when the table already has a row for its key.
func Known(rec dedup.Record, row dedup.Claim) dedup.Verdict {
	if row.Fingerprint.Matches(rec.Fingerprint) {
		return dedup.Duplicate
	}
	return dedup.Mismatch
}

// Young reports that no node can have forgotten the key of a message with time t, so the horizon need not be read.
// clock is the database's clock after the claim.
func Young(t, clock time.Time) bool {
	return t.IsZero() || clock.Before(t.Add(dedup.MinWindow))
}

// Collision returns the error for a claim of key that found the row of another key.
func Collision(key, other dedup.Key) error {
	return fmt.Errorf("%w: %v and %v", dedup.ErrKeyCollision, key, other)
}

// Ceil rounds t up to whole microseconds. A row that expired even a fraction of a microsecond before its message's time
// plus its window would let the horizon count the message as new.
func Ceil(t time.Time) time.Time {
	if d := t.Truncate(time.Microsecond); d.Before(t) {
		return d.Add(time.Microsecond)
	}
	return t
}
