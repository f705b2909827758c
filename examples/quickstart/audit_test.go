package main

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/txonce/txonce/observe"
)

// TestAudit plants each fault that the audit must find.
func TestAudit(t *testing.T) {
	p := newPlan(1000, 3)
	find := func(k kind) int { return slices.IndexFunc(p.messages, func(m message) bool { return m.kind == k }) }
	bad, second := find(poison), find(reuse)
	first := int(p.messages[second].order)
	plain := 0
	for p.messages[plain].kind != healthy || plain == first {
		plain++
	}

	for _, tt := range []struct {
		name    string
		fault   func(o *remains)
		want    func(f *findings) // changes the findings of a faultless run
		problem bool
	}{
		{name: "nothing is wrong", fault: func(*remains) {}, want: func(*findings) {}},
		{
			name:  "the second content was charged and the first parked",
			fault: func(o *remains) { o.rows[first], o.rows[second] = 0, 1; o.move(first, second) },
			want:  func(f *findings) { f.Suppressed += int(p.messages[second].copies) - int(p.messages[first].copies) },
		},
		{
			name: "an order is lost", fault: func(o *remains) { o.rows[plain] = 0 }, problem: true,
			want: func(f *findings) { f.Effects--; f.Events--; f.Lost++; f.Suppressed++ },
		},
		{
			name: "an order is charged twice", fault: func(o *remains) { o.rows[plain] = 2 }, problem: true,
			want: func(f *findings) { f.Effects++; f.Doubled++; f.Suppressed-- },
		},
		{
			name: "an order is charged four times", fault: func(o *remains) { o.rows[plain] = 4 }, problem: true,
			want: func(f *findings) { f.Effects += 3; f.Doubled += 3; f.Suppressed -= 3 },
		},
		{
			name: "both contents of a key are charged", problem: true,
			fault: func(o *remains) { o.rows[second] = 1; o.letters[second] = nil },
			want: func(f *findings) {
				f.Effects++
				f.Events++
				f.Doubled++
				f.MismatchesParked--
				f.Suppressed += int(p.messages[second].copies) - 1
			},
		},
		{
			name: "neither content of a key is charged", problem: true,
			fault: func(o *remains) { o.rows[first] = 0 },
			want:  func(f *findings) { f.Effects--; f.Events--; f.Lost++; f.Suppressed++ },
		},
		{
			name: "a mismatch is dropped", problem: true,
			fault: func(o *remains) { o.letters[second] = nil },
			want:  func(f *findings) { f.MismatchesParked--; f.Suppressed += int(p.messages[second].copies) },
		},
		{
			name: "poison is dropped", problem: true,
			fault: func(o *remains) { o.letters[bad] = nil },
			want:  func(f *findings) { f.PoisonParked--; f.Suppressed += int(p.messages[bad].copies) },
		},
		{
			name: "poison is parked twice", problem: true,
			fault: func(o *remains) { o.letters[bad] = append(o.letters[bad], observe.CausePermanent) },
			want:  func(f *findings) { f.PoisonParked++ },
		},
		{
			name: "poison is charged", problem: true,
			fault: func(o *remains) { o.rows[bad] = 1 },
			want: func(f *findings) {
				f.Effects++
				f.Events++
				f.Doubled++
				f.Suppressed += int(p.messages[bad].copies) - 1
			},
		},
		{
			name: "a healthy order is parked as poison instead of charged", problem: true,
			fault: func(o *remains) {
				o.rows[plain] = 0
				o.letters[plain] = []observe.Cause{observe.CausePermanent}
			},
			want: func(f *findings) {
				f.Effects--
				f.Events--
				f.Lost++
				f.PoisonParked++
				f.Suppressed -= int(p.messages[plain].copies) - 1
			},
		},
		{
			name: "a charged order is parked as well", problem: true,
			fault: func(o *remains) { o.letters[plain] = []observe.Cause{observe.CauseUnprovable} },
			want:  func(f *findings) { f.UnprovableParked++ },
		},
		{
			name: "events are published again, late", fault: func(o *remains) { o.again = []int{first, plain, plain} },
			want: func(f *findings) { f.Events += 3; f.EventsRepublished += 3 },
		},
		{
			name: "a charge is not announced", fault: func(o *remains) { o.silent = []int{plain} }, problem: true,
			want: func(f *findings) { f.Events--; f.EventsMissing++ },
		},
		{
			name: "no charge is announced", problem: true,
			fault: func(o *remains) {
				for i := range p.messages {
					o.silent = append(o.silent, i)
				}
			},
			want: func(f *findings) { f.Events, f.EventsMissing = 0, f.Effects },
		},
		{
			name: "events change places", fault: func(o *remains) { o.swapped = true }, problem: true,
			want: func(f *findings) { f.EventsOutOfOrder++ },
		},
		{
			name: "an event has another ID", fault: func(o *remains) { o.foreignID = []int{plain} }, problem: true,
			want: func(f *findings) { f.EventsWithForeignID++; f.EventsMissing++ },
		},
		{
			name: "what was not charged is announced", problem: true,
			fault: func(o *remains) { o.rows[plain] = 0; o.announced = []int{plain} },
			want:  func(f *findings) { f.Effects--; f.Lost++; f.Suppressed++ },
		},
		{
			name: "somebody charges what nobody ordered", problem: true,
			fault: func(o *remains) { o.foreign = []Order{{ID: orderID(plain), Amount: 5}} },
			want:  func(f *findings) { f.Effects++; f.Doubled++; f.Suppressed-- },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := faultless(p).audit(t, p)
			tt.want(&want)
			o := faultless(p)
			tt.fault(o)
			got := o.audit(t, p)
			if tt.problem != (len(got.Problems) > 0) {
				t.Errorf("problems: %q", got.Problems)
			}
			got.Problems, got.problems, want.Problems, want.problems = nil, 0, nil, 0
			if !same(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func same(a, b findings) bool {
	return a.Effects == b.Effects && a.Lost == b.Lost && a.Doubled == b.Doubled &&
		a.MismatchesParked == b.MismatchesParked &&
		a.PoisonParked == b.PoisonParked && a.UnprovableParked == b.UnprovableParked && a.Suppressed == b.Suppressed &&
		a.Events == b.Events && a.EventsMissing == b.EventsMissing && a.EventsRepublished == b.EventsRepublished &&
		a.EventsOutOfOrder == b.EventsOutOfOrder && a.EventsWithForeignID == b.EventsWithForeignID
}

// remains is what workers leave behind.
type remains struct {
	rows    []int
	letters [][]observe.Cause
	foreign []Order

	// Every row has one event, except for these messages.
	silent, again, foreignID, announced []int // messages
	swapped                             bool  // two events of one customer
}

// faultless is what a faultless run leaves behind.
func faultless(p *plan) *remains {
	o := &remains{rows: make([]int, len(p.messages)), letters: make([][]observe.Cause, len(p.messages))}
	for i, m := range p.messages {
		switch m.kind {
		case healthy:
			o.rows[i] = 1
		case poison:
			o.letters[i] = []observe.Cause{observe.CausePermanent}
		case reuse:
			o.letters[i] = []observe.Cause{observe.CauseMismatch}
		}
	}
	return o
}

func (o *remains) move(to, from int) { o.letters[to], o.letters[from] = o.letters[from], nil }

func (o *remains) audit(t *testing.T, p *plan) findings {
	t.Helper()
	a := newAudit(p, eventID("charged"))
	for i, n := range o.rows {
		for range n {
			a.entry(p.Order(i))
		}
	}
	for _, f := range o.foreign {
		a.entry(f)
	}
	for i, causes := range o.letters {
		for _, r := range causes {
			payload, err := json.Marshal(p.Order(i))
			if err != nil {
				t.Fatal(err)
			}
			a.letter(p.Order(i).ID, r, payload)
		}
	}
	o.announce(t, p, a)
	return a.close()
}

// announce publishes the events. Those of each customer have increasing balances.
func (o *remains) announce(t *testing.T, p *plan, a *audit) {
	t.Helper()
	type event struct{ id, customer, payload string }
	var all, late []event
	balance := map[string]int64{}
	for i, n := range o.rows {
		order := p.Order(i)
		if slices.Contains(o.silent, i) || n == 0 && !slices.Contains(o.announced, i) {
			continue
		}
		balance[order.Customer] += max(order.Amount, 1)
		id := a.eventID(order.ID)
		if slices.Contains(o.foreignID, i) {
			id = a.eventID("order-0")
		}
		payload, err := json.Marshal(Charged{OrderID: order.ID, Amount: order.Amount, Balance: balance[order.Customer]})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, event{id, order.Customer, string(payload)})
		for _, j := range o.again {
			if i == j {
				late = append(late, all[len(all)-1])
			}
		}
	}
	if o.swapped {
		of := func(e event) bool { return e.customer == "customer-03-1" }
		i := slices.IndexFunc(all, of)
		j := i + 1 + slices.IndexFunc(all[i+1:], of)
		all[i], all[j] = all[j], all[i]
	}
	for _, e := range append(all, late...) {
		a.event(e.id, e.customer, []byte(e.payload))
	}
}
