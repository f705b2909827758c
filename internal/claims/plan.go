package claims

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Row is one row to claim: the first Record of its key in the call.
type Row struct {
	KeyHash dedup.KeyHash
	Record  dedup.Record // Time rounded up to whole microseconds, which is what databases keep; see Ceil
}

// Plan says which rows answer a call's records.
type Plan struct {
	Rows []Row // each key once, in the order of KeyHash: all transactions lock in one order, so that none deadlock

	recs []dedup.Record
	row  []int // row[i] is the index in Rows of what answers recs[i]
}

// NewPlan validates recs and puts them in order. It does not keep recs' order in Rows, nor does it change recs.
func NewPlan(recs []dedup.Record) (*Plan, error) {
	p := &Plan{Rows: make([]Row, 0, len(recs)), recs: recs, row: make([]int, len(recs))}
	if len(recs) == 1 { // most claims: nothing to compare or sort
		rec := recs[0]
		if err := rec.Validate(); err != nil {
			return nil, err
		}
		rec.Time = Ceil(rec.Time)
		p.Rows = append(p.Rows, Row{KeyHash: rec.Key.Hash(), Record: rec})
		return p, nil
	}
	derived := make([]dedup.KeyHash, len(recs))
	order := make([]int, len(recs)) // indices of recs, to be sorted in their place: they are small
	for i, rec := range recs {
		if err := rec.Validate(); err != nil {
			return nil, err
		}
		derived[i], order[i] = rec.Key.Hash(), i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(derived[i].Compare(derived[j]), i-j) })
	for at, i := range order {
		rec := recs[i]
		if at > 0 && derived[order[at-1]] == derived[i] {
			if first := p.Rows[len(p.Rows)-1].Record.Key; first != rec.Key {
				return nil, Collision(rec.Key, first)
			}
		} else {
			rec.Time = Ceil(rec.Time)
			p.Rows = append(p.Rows, Row{KeyHash: derived[i], Record: rec})
		}
		p.row[i] = len(p.Rows) - 1
	}
	return p, nil
}

// Windows returns what must be registered before the rows are claimed, each once, in the order everyone locks in.
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

// Answers puts what was found for Rows into the order of the records. found[i] is of Rows[i]: its Verdict, and the row
// as it stands in the table now, also where this very claim inserted it. A repeated key is First once; what follows it
// in the call is told of the row as any later caller would be. Where nothing was claimed nothing is for the repeat either.
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

// Known is the verdict on rec where row stands.
func Known(rec dedup.Record, row dedup.Claim) dedup.Verdict {
	if row.Fingerprint.Matches(rec.Fingerprint) {
		return dedup.Duplicate
	}
	return dedup.Mismatch
}

// Young reports that at clock, the database's after the claim, no node can have forgotten the key of a message of time t:
// the horizon need not be read for it.
func Young(t, clock time.Time) bool {
	return t.IsZero() || clock.Before(t.Add(dedup.MinWindow))
}

// Collision is the error of a claim of key that met a row of other.
func Collision(key, other dedup.Key) error {
	return fmt.Errorf("%w: %v and %v", dedup.ErrKeyCollision, key, other)
}

// Ceil rounds t up to whole microseconds, so that no row expires earlier, by as little as it may be, than its message's
// time and window say: the horizon would take the message for new.
func Ceil(t time.Time) time.Time {
	if d := t.Truncate(time.Microsecond); d.Before(t) {
		return d.Add(time.Microsecond)
	}
	return t
}
