package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/txonce/txonce/observe"
)

// audit compares the ledger, the dead letters and the published events with the plan. It never reads the claims or the
// outbox, because those are under test. Everything was delivered, so every message must have ended as either a row of
// the ledger, with its event, or a dead letter.
type audit struct {
	plan      *plan
	eventID   func(order string) string
	charged   []uint16         // ledger rows per message
	parked    []uint16         // dead letters per message
	announced []uint16         // publications of its event, per message
	balances  map[string]int64 // per customer, according to the events so far
	published []string         // the IDs of all events, for the auditor
	findings  findings
}

// findings is what an audit found.
type findings struct {
	Effects             int // rows in the ledger
	Lost                int // orders without a charge
	Doubled             int // surplus rows in the ledger
	MismatchesParked    int
	PoisonParked        int
	UnprovableParked    int
	Suppressed          int // deliveries that had no effect and were not parked
	Events              int // publications
	EventsMissing       int // of charges
	EventsRepublished   int
	EventsOutOfOrder    int
	EventsWithForeignID int      // an ID other than that of the event's order
	Auditor             audited  // of txonce audit
	Problems            []string // descriptions of the first few problems
	problems            int
}

func newAudit(p *plan, eventID func(order string) string) *audit {
	counts := func() []uint16 { return make([]uint16, len(p.messages)) }
	return &audit{
		plan: p, eventID: eventID, charged: counts(), parked: counts(), announced: counts(),
		balances: map[string]int64{},
	}
}

// entry counts one row of the ledger.
func (a *audit) entry(o Order) {
	a.findings.Effects++
	if i, ok := a.plan.Find(o); ok {
		a.charged[i]++
		return
	}
	a.findings.Doubled++
	a.problem("the ledger charges %d for %s, which was not ordered", o.Amount, o.ID)
}

// letter counts one dead letter.
func (a *audit) letter(key string, cause observe.Cause, payload []byte) {
	var o Order
	i, ok := 0, false
	if json.Unmarshal(payload, &o) == nil {
		i, ok = a.plan.Find(o)
	}
	if !ok || key != o.ID {
		a.problem("a dead letter (%s) of key %q is of no order: %q", cause, key, payload)
		return
	}
	a.parked[i]++
	want := observe.CauseMismatch
	if a.plan.messages[i].kind == poison {
		want = observe.CausePermanent
	}
	switch cause {
	case observe.CausePermanent:
		a.findings.PoisonParked++
	case observe.CauseMismatch:
		a.findings.MismatchesParked++
	case observe.CauseUnprovable:
		a.findings.UnprovableParked++
	default: // reported below
	}
	if cause != want {
		a.problem("%s was parked for %q", o.ID, cause)
	}
}

// event counts one record of the topic of events. Only the first publication of each event must be in order.
func (a *audit) event(id, customer string, payload []byte) {
	f := &a.findings
	f.Events++
	a.published = append(a.published, id)
	var e Charged
	i, ok := 0, false
	if json.Unmarshal(payload, &e) == nil {
		i, ok = a.plan.Find(Order{ID: e.OrderID, Amount: e.Amount})
	}
	switch {
	case !ok || customer != a.plan.Order(i).Customer:
		a.problem("an event of customer %q is of no order: %q", customer, payload)
		return
	case id != a.eventID(e.OrderID):
		f.EventsWithForeignID++
		a.problem("an event for %s carries the ID %q, which is not the one of that order", e.OrderID, id)
		return
	}
	if a.announced[i]++; a.announced[i] > 1 {
		f.EventsRepublished++
		return
	}
	if before := a.balances[customer]; e.Balance <= before {
		f.EventsOutOfOrder++
		a.problem("the event for %s, which made the balance of %s %d, came after one that made it %d", e.OrderID,
			customer, e.Balance, before)
	}
	a.balances[customer] = max(a.balances[customer], e.Balance)
}

func (a *audit) problem(format string, args ...any) {
	const shown = 10
	if a.findings.problems++; a.findings.problems <= shown {
		a.findings.Problems = append(a.findings.Problems, fmt.Sprintf(format, args...))
	}
}

// close returns the findings.
func (a *audit) close() findings {
	p, f := a.plan, &a.findings
	rows := make([]int, len(p.messages)) // per key, indexed by the message that owns the key
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
	for i, m := range p.messages {
		switch id := orderID(int(m.order)); {
		case a.charged[i] > 0 && a.announced[i] == 0:
			f.EventsMissing++
			a.problem("the charge of %d for %s was never announced", p.Order(i).Amount, id)
		case a.charged[i] == 0 && a.announced[i] > 0:
			a.problem("a charge of %d for %s was announced and is not in the ledger", p.Order(i).Amount, id)
		}
	}
	if more := f.problems - len(f.Problems); more > 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("and %d more", more))
	}
	return *f
}

// run reads the ledger and the dead letters from db and the events from b.
func (a *audit) run(ctx context.Context, db *sql.DB, b broker) (findings, error) {
	err := each(ctx, db, `SELECT order_id, amount FROM ledger`, func(scan func(...any) error) error {
		var o Order
		err := scan(&o.ID, &o.Amount)
		a.entry(o)
		return err
	})
	if err != nil {
		return findings{}, fmt.Errorf("read the ledger: %w", err)
	}
	err = each(ctx, db, `SELECT coalesce(message_id, ''), cause, payload FROM dead_letters`, func(scan func(...any) error) error {
		var key, cause string
		var payload []byte
		err := scan(&key, &cause, &payload)
		a.letter(key, observe.Cause(cause), payload)
		return err
	})
	if err != nil {
		return findings{}, fmt.Errorf("read the dead letters: %w", err)
	}
	if err := b.Events(ctx, a.event); err != nil {
		return findings{}, err
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
