package main

import (
	"iter"
	"reflect"
	"testing"
	"time"
)

func TestPlanRepeats(t *testing.T) {
	a, b := newPlan(5000, 7), newPlan(5000, 7)
	kills, again := take(a.kills.Every(time.Second), 50), take(b.kills.Every(time.Second), 50)
	if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(kills, again) {
		t.Error("one seed gave two plans")
	}
	if reflect.DeepEqual(a.deliveries, newPlan(5000, 8).deliveries) {
		t.Error("two seeds gave the same deliveries")
	}
}

func take[T any](seq iter.Seq[T], n int) (got []T) {
	for v := range seq {
		if got = append(got, v); len(got) == n {
			break
		}
	}
	return got
}

func TestPlanHoldsWhatItPromises(t *testing.T) {
	for _, messages := range []int{minRun, 399, 2000, 20_000} {
		for seed := range uint64(2) {
			p := newPlan(messages, seed)
			var copies [maxCopies + 1]int
			kinds := map[kind]int{}
			for i, m := range p.messages {
				kinds[m.kind]++
				if m.copies < 1 || m.copies > maxCopies {
					t.Fatalf("message %d has %d copies", i, m.copies)
				}
				copies[m.copies]++
				if m.kind != reuse && int(m.order) != i {
					t.Fatalf("message %d carries the key of %d", i, m.order)
				}
				if owner := p.messages[m.order]; m.kind == reuse && owner.kind != healthy {
					t.Fatalf("message %d reuses the key of %d, which is of kind %d", i, m.order, owner.kind)
				}
				if back, ok := p.Find(p.Order(i)); !ok || back != i {
					t.Fatalf("Find(Order(%d)) = %d, %v", i, back, ok)
				}
			}
			if kinds[poison] != p.poison || kinds[reuse] != p.reused || p.poison == 0 || p.reused == 0 {
				t.Errorf("%d messages: kinds %v, planted %d poison and %d reused", messages, kinds, p.poison, p.reused)
			}
			for c := 1; c <= maxCopies; c++ {
				if copies[c] == 0 {
					t.Errorf("%d messages: none has %d copies", messages, c)
				}
			}

			seen := make([]int, messages)
			at := make([]map[uint8]bool, messages)
			for _, d := range p.deliveries {
				seen[d.message]++
				if at[d.message] == nil {
					at[d.message] = map[uint8]bool{}
				}
				at[d.message][d.partition] = true
				if d.partition >= partitions {
					t.Fatalf("a delivery goes to partition %d", d.partition)
				}
			}
			several := 0
			for i, m := range p.messages {
				if seen[i] != int(m.copies) {
					t.Fatalf("message %d is delivered %d times, its plan says %d", i, seen[i], m.copies)
				}
				if len(at[i]) > 1 {
					several++
				}
				if (len(at[i]) > 1) != m.scattered {
					t.Fatalf("message %d lies on %d partitions, scattered is %v", i, len(at[i]), m.scattered)
				}
			}
			home := map[string]uint8{} // of a customer
			for _, d := range p.deliveries {
				of := p.Order(int(d.message)).Customer
				if before, known := home[of]; known && before != d.partition && !p.alone[p.messages[d.message].order] {
					t.Fatalf("%s has several orders, on partitions %d and %d: batches would deadlock", of, before,
						d.partition)
				}
				home[of] = d.partition
			}
			orders := map[string]map[uint32]bool{}
			for i, m := range p.messages {
				of := p.Order(i).Customer
				if orders[of] == nil {
					orders[of] = map[uint32]bool{}
				}
				orders[of][m.order] = true
				if p.alone[m.order] && len(orders[of]) > 1 {
					t.Fatalf("%s is to have one order and has %d", of, len(orders[of]))
				}
			}
			if busy := len(orders["customer-00-0"]); messages >= 2000 && busy < 5 {
				t.Errorf("a customer has %d orders: events can hardly be out of order", busy)
			}
			if several != messages/5 {
				t.Errorf("%d of %d messages lie on several partitions, want a fifth", several, messages)
			}
			for i, n := range p.kills.halts {
				if n < 1 || n > messages/8+1 {
					t.Errorf("%d messages: static worker %d stops at its new message %d", messages, i, n)
				}
			}
		}
	}
}

func TestCopiesShareTheirTime(t *testing.T) {
	p, start := newPlan(1000, 1), time.Now()
	for i := range p.messages {
		if at := p.PlacedAt(i, start); at.After(start) || at.Before(start.Add(-time.Hour)) {
			t.Fatalf("message %d was placed %v before the start", i, start.Sub(at))
		}
	}
}
