// Package calls_test makes many calls while processes are killed and frozen at each boundary, and compares what the
// other system did with what the database says.
package calls_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/calls/callstest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/child"
	"github.com/txonce/txonce/internal/test/system/engines"
	"github.com/txonce/txonce/outbox"
)

var (
	number = flag.Int("calls.n", 40, "how many calls TestCalls makes with PostgreSQL and each of four kinds of other systems; a tenth of them, or 40, with the others")
	out    = flag.String("calls.proof", "", "write how often processes were killed and frozen to files in this `folder`")
)

const relays = 2

func TestCalls(t *testing.T) {
	for _, e := range []engines.Engine{engines.Postgres, engines.MariaDB, engines.MySQL} {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			counts := newCounts(t, e)
			for _, kind := range []struct {
				name      string
				remembers time.Duration // of the provider
				find      bool
			}{
				{"keys are remembered", time.Hour, false},
				{"keys are forgotten after 4 s, with Find", 4 * time.Second, true},
				{"no keys, with Find", 0, true},
				{"no keys, no Find", 0, false},
			} {
				if e.Name != "postgres" && *number < 1000 && (!kind.find || kind.remembers == 0) {
					continue
				}
				t.Run(kind.name, func(t *testing.T) {
					t.Parallel() // they wait for leases and frozen processes
					n := *number
					if e.Name != "postgres" {
						n = min(n, max(n/10, 40))
					}
					makeCalls(t, e, kind.name, n, kind.remembers, kind.find, counts)
				})
			}
		})
	}
}

func makeCalls(t *testing.T, e engines.Engine, name string, n int, remembers time.Duration, find bool, counts *counts) {
	provider := &callstest.Provider{Remembers: remembers, Late: late, Misbehave: callstest.Sometimes(20)}
	seen := &requests{of: provider}
	server := httptest.NewServer(seen)
	defer server.Close()
	s := settings{
		Driver: e.Driver, DSN: e.Create(t), Provider: server.URL, Insert: e.Insert, Keeps: remembers, Find: find,
		Rate: max(60, n/8),
	}
	db, store, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	enqueue(t, s, store, n)
	began := time.Now()
	workers := child.StartGroup(t, relays, func(nth int) []string {
		mine := s
		mine.Nth = nth
		text, err := json.Marshal(mine)
		if err != nil {
			t.Error(err)
		}
		return []string{string(text)}
	})
	defer workers.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var thawing sync.WaitGroup
	thaws := 0
	thawing.Go(func() { thaws = workers.Thaw(ctx, frozen) })
	parked := await(t, store)
	cancel()
	thawing.Wait()
	killed := workers.Stop()
	took := time.Since(began)

	results := effects(t, db)
	r := tally(n, provider.Charges(), results, parked)
	faults, repeats := provider.Faults()
	fmt.Fprintf(os.Stdout, `
%s: %s
  %d calls by %d relays in %v; processes killed %d times, frozen %d times; the other system misbehaved %d times and recognized %d repeats
  charged once and recorded once %d, in doubt %d (of these charged %d)
  charged twice %d, recorded twice %d, recorded and not charged %d, lost %d
`, e.Name, name, n, relays, took.Round(time.Second), killed, thaws, sum(faults), repeats, r.once, r.doubt, r.doubtCharged, r.chargedTwice, r.recordedTwice, r.onlyRecorded, r.lost)
	bad := r.chargedTwice + r.recordedTwice + r.onlyRecorded + r.lost
	counts.add(killed, thaws, bad)
	if bad > 0 {
		t.Errorf("%+v\n%s", r, seen.twice(provider.Charges()))
	}
	if r.doubt > 0 && (find || remembers > time.Minute) {
		t.Errorf("%d calls are in doubt", r.doubt)
	}
	if n >= 1000 && (killed == 0 || thaws == 0) {
		t.Error("no process was killed or frozen, so this test has shown nothing")
	}
}

func enqueue(t *testing.T, s settings, store calls.Store[*sql.Tx], n int) {
	charges, err := calls.New(s.config(store))
	if err != nil {
		t.Fatal(err)
	}
	const together = 100
	for from := 0; from < n; from += together {
		var requests []calls.Request
		for i := from; i < min(n, from+together); i++ {
			requests = append(requests, calls.Request{ID: fmt.Sprint("order-", i), OrderingKey: fmt.Sprint("customer-", i%500), Payload: []byte("{}")})
		}
		err := store.InTx(t.Context(), nil, func(tx *sql.Tx, _ []dedup.Claim) error { return charges.Enqueue(t.Context(), tx, requests...) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// await waits until each call is settled or parked, and returns the parked ones.
func await(t *testing.T, store interface{ Outbox() outbox.Operations }) map[string]outbox.ParkedMessage {
	t.Helper()
	deadline := time.Now().Add(20 * time.Minute)
	before := map[string]outbox.ParkedMessage{} // discarded
	for tick := time.NewTicker(200 * time.Millisecond); ; <-tick.C {
		stats, err := store.Outbox().Stats(t.Context())
		if time.Now().After(deadline) {
			t.Fatalf("not settled after 20 minutes: %+v (%v)", stats, err)
		}
		if err != nil || stats.Pending+stats.Delayed > 0 {
			continue
		}
		if stats.Waiting > 0 { // behind a call in doubt: a person discards that one
			maps.Copy(before, discard(t, store))
			continue
		}
		parked := map[string]outbox.ParkedMessage{}
		found, err := store.Outbox().Parked(t.Context(), outbox.ParkedFilter{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found {
			parked[m.ID] = m
		}
		maps.Copy(parked, before)
		return parked
	}
}

// discard discards the calls in doubt, and returns them by ID.
func discard(t *testing.T, store interface{ Outbox() outbox.Operations }) map[string]outbox.ParkedMessage {
	found, err := store.Outbox().Parked(t.Context(), outbox.ParkedFilter{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	discarded := map[string]outbox.ParkedMessage{}
	for _, m := range found {
		if m.Behind != 0 || m.Waiting {
			continue
		}
		if _, err := store.Outbox().Discard(t.Context(), m.Seq); err != nil {
			t.Fatal(err)
		}
		discarded[m.ID] = m
	}
	return discarded
}

func effects(t *testing.T, db *sql.DB) map[string]int {
	rows, err := db.QueryContext(t.Context(), `SELECT name, count(*) FROM effects GROUP BY name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var name string
		var n int
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		found[name] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// result counts calls.
type result struct{ once, doubt, doubtCharged, chargedTwice, recordedTwice, onlyRecorded, lost int }

func tally(n int, charged, recorded map[string]int, parked map[string]outbox.ParkedMessage) (r result) {
	for i := range n {
		id := fmt.Sprint("order-", i)
		m, isParked := parked[id]
		switch c, d := charged[id], recorded[id]; {
		case c > 1:
			r.chargedTwice++
		case d > 1:
			r.recordedTwice++
		case d == 1 && c == 0:
			r.onlyRecorded++
		case d == 1:
			r.once++
		case isParked && m.Call() == outbox.CallInDoubt:
			r.doubt++
			r.doubtCharged += c
		default:
			r.lost++
		}
	}
	return r
}

func sum(faults map[callstest.Fault]int) (n int) {
	for f, times := range faults {
		if f != callstest.None {
			n += times
		}
	}
	return n
}
