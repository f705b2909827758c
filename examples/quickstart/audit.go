package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/txonce/txonce/consumer"
)

// audit compares the ledger and the dead letters with the plan. It never looks at the claims: those are what is on
// trial. Everything was delivered, so every message must have ended as exactly one of the two.
type audit struct {
	plan     *plan
	charged  []uint16 // ledger rows per message
	parked   []uint16 // dead letters per message
	findings findings
}

// findings is what an audit found.
type findings struct {
	Effects          int // rows in the ledger
	Lost             int // orders that nobody charged
	Doubled          int // rows in the ledger that should not be there
	MismatchesParked int
	PoisonParked     int
	UnprovableParked int
	Suppressed       int      // deliveries that had no effect and were not parked
	Problems         []string // what else is wrong, in words; the first few
	problems         int
}

func newAudit(p *plan) *audit {
	return &audit{plan: p, charged: make([]uint16, len(p.messages)), parked: make([]uint16, len(p.messages))}
}

// entry takes in one row of the ledger.
func (a *audit) entry(o Order) {
	a.findings.Effects++
	if i, ok := a.plan.Find(o); ok {
		a.charged[i]++
		return
	}
	a.findings.Doubled++
	a.problem("the ledger charges %d for %s, which nobody ordered", o.Amount, o.ID)
}

// letter takes in one dead letter.
func (a *audit) letter(key string, reason consumer.Reason, payload []byte) {
	var o Order
	i, ok := 0, false
	if json.Unmarshal(payload, &o) == nil {
		i, ok = a.plan.Find(o)
	}
	if !ok || key != o.ID {
		a.problem("a dead letter (%s) of key %q is of no order: %q", reason, key, payload)
		return
	}
	a.parked[i]++
	want := consumer.ReasonMismatch
	if a.plan.messages[i].kind == poison {
		want = consumer.ReasonPoison
	}
	switch reason {
	case consumer.ReasonPoison:
		a.findings.PoisonParked++
	case consumer.ReasonMismatch:
		a.findings.MismatchesParked++
	case consumer.ReasonUnprovable:
		a.findings.UnprovableParked++
	default: // a problem, below
	}
	if reason != want {
		a.problem("%s was parked for %q", o.ID, reason)
	}
}

func (a *audit) problem(format string, args ...any) {
	const shown = 10
	if a.findings.problems++; a.findings.problems <= shown {
		a.findings.Problems = append(a.findings.Problems, fmt.Sprintf(format, args...))
	}
}

// close gives the verdict.
func (a *audit) close() findings {
	p, f := a.plan, &a.findings
	rows := make([]int, len(p.messages)) // per key, by the number of the message that owns it
	suppressed := len(p.deliveries) - f.Effects
	for i, m := range p.messages {
		rows[m.order] += int(a.charged[i])
		if a.charged[i] == 0 && a.parked[i] > 0 {
			suppressed -= int(m.copies)
		}
	}
	f.Suppressed = max(0, suppressed)
	shared := make([]bool, len(p.messages)) // keys that another message reuses
	for _, m := range p.messages {
		shared[m.order] = shared[m.order] || m.kind == reuse
	}
	for i, m := range p.messages {
		id := orderID(int(m.order))
		if m.kind != reuse { // i owns the key
			want := 1
			if m.kind == poison {
				want = 0
			}
			switch n := rows[i]; {
			case n < want:
				f.Lost++
				a.problem("%s was never charged", id)
			case n > want:
				f.Doubled += n - want
				a.problem("%s was charged %d times instead of %d", id, n, want)
			}
		}
		letters := 0
		if m.kind == poison || shared[m.order] && a.charged[i] == 0 {
			letters = 1
		}
		if n := int(a.parked[i]); n != letters {
			a.problem("%s for %d has %d dead letters instead of %d", id, p.Order(i).Amount, n, letters)
		}
	}
	if more := f.problems - len(f.Problems); more > 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("and %d more", more))
	}
	return *f
}

// run reads what the workers left in db.
func (a *audit) run(ctx context.Context, db *sql.DB) (findings, error) {
	err := each(ctx, db, `SELECT order_id, amount FROM ledger`, func(scan func(...any) error) error {
		var o Order
		err := scan(&o.ID, &o.Amount)
		a.entry(o)
		return err
	})
	if err != nil {
		return findings{}, fmt.Errorf("read the ledger: %w", err)
	}
	err = each(ctx, db, `SELECT coalesce(message_id, ''), reason, payload FROM dead_letters`, func(scan func(...any) error) error {
		var key, reason string
		var payload []byte
		err := scan(&key, &reason, &payload)
		a.letter(key, consumer.Reason(reason), payload)
		return err
	})
	if err != nil {
		return findings{}, fmt.Errorf("read the dead letters: %w", err)
	}
	return a.close(), nil
}

func each(ctx context.Context, db *sql.DB, query string, row func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
