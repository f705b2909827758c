package dashboard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// What a page reads does not grow with the tables. The databases themselves count the rows.
func TestRowsRead(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *dashboardtest.DB{
		"postgres": dashboardtest.Postgres,
		"mariadb":  dashboardtest.MySQL, "mysql": dashboardtest.MySQL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filled := open(t)
			filled.SQL.SetMaxOpenConns(1) // the counters are those of a session
			filled.Fill(t, 200_000, 40_000)
			for _, c := range reads(t, filled) {
				most := c.most
				if name == "mysql" {
					most += most / 20 // it counts 2 % more than MariaDB for the same statements
				}
				before := counted(t, filled.SQL, name)
				unrelated := counted(t, filled.SQL, name) - before
				if err := c.read(t.Context()); err != nil {
					t.Fatalf("%s: %v", c.what, err)
				}
				if n := counted(t, filled.SQL, name) - before - 2*unrelated; n > most {
					t.Errorf("%s: %d rows are read, want at most %d", c.what, n, most)
				}
			}
		})
	}
}

func counted(t *testing.T, db *sql.DB, name string) (n int64) {
	t.Helper()
	if name != "postgres" {
		return testdb.MySQLRowsRead(t, db)
	}
	if _, err := db.ExecContext(t.Context(), `SELECT pg_stat_force_next_flush()`); err != nil {
		t.Fatal(err)
	}
	const read = `SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = current_schema()`
	if err := db.QueryRowContext(t.Context(), read).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

type read struct {
	what string
	most int64
	read func(ctx context.Context) error
}

// reads are what pages ask the database. Of 40,000 letters, 32,000 are billing's.
func reads(t *testing.T, db *dashboardtest.DB) (list []read) {
	s := db.Operator()
	page := letters(t, db, consumer.DeadLetterFilter{Consumer: "billing", Limit: 5000})
	after := page[len(page)-1].Cursor()
	add := func(what string, most int64, f consumer.DeadLetterFilter) {
		f.Limit = 51
		list = append(list, read{what, most, func(ctx context.Context) error { _, err := s.DeadLetters(ctx, f); return err }})
	}
	add("letters of all consumers", 500, consumer.DeadLetterFilter{})
	add("letters of one consumer", 400, consumer.DeadLetterFilter{Consumer: "billing"})
	add("letters of one consumer and cause", 400, consumer.DeadLetterFilter{
		Consumer: "billing",
		Cause:    observe.CauseExhausted,
	})
	add("a later page", 400, consumer.DeadLetterFilter{Consumer: "billing", After: after})
	add("a later page of all consumers", 500, consumer.DeadLetterFilter{After: after})
	add("letters until a time", 400, consumer.DeadLetterFilter{Consumer: "billing", Until: after.First})
	add("letters since a time", 400, consumer.DeadLetterFilter{Consumer: "billing", Since: page[0].First.Add(-time.Millisecond)})
	add("letters of a key", 20, consumer.DeadLetterFilter{Consumer: "billing", MessageID: "order-10001"})
	add("letters of a key of any consumer", 20, consumer.DeadLetterFilter{MessageID: "order-10001"})
	add("a letter by its id", 20, consumer.DeadLetterFilter{ID: after.ID})
	const search = 2000
	limited := func(what string, f consumer.DeadLetterFilter) {
		f.Limit = 51
		list = append(list, read{what, 2*search + 100, func(ctx context.Context) (err error) {
			// in the index, and of the table
			if f.Since, err = s.Keys().Reach(ctx, f, search); err == nil {
				_, err = s.DeadLetters(ctx, f)
			}
			return err
		}})
	}
	limited("a search without a match", consumer.DeadLetterFilter{Consumer: "billing", Topic: "nothing"})
	limited("a search in errors without a match", consumer.DeadLetterFilter{Error: "nothing"})
	limited("a later search without a match", consumer.DeadLetterFilter{
		Consumer: "billing", Error: "nothing",
		After: after,
	})
	list = append(list, read{"a dry run without a match", 2*5*300 + 100, func(ctx context.Context) error {
		p, err := ops.PlanReplay(ctx, s, ops.Request{Filter: consumer.DeadLetterFilter{Consumer: "billing", Error: "nothing"}}, 300)
		if err == nil && p.Searched.IsZero() {
			err = errors.New("the plan does not say that it has not searched everything")
		}
		return err
	}}, read{"consumers", 100, func(ctx context.Context) error { _, err := s.Keys().Consumers(ctx); return err }})
	ended, err := s.Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-16",
		Filter: consumer.DeadLetterFilter{Consumer: "billing"}, Expect: 32_000,
	})
	if err == nil {
		_, err = s.End(t.Context(), ended.ID, "not yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, read{"a list of actions that have ended", 100, func(ctx context.Context) error {
		found, err := s.Actions(ctx, ops.ActionFilter{ID: ended.ID})
		if err == nil && (len(found) != 1 || found[0].Results[observe.Held] != 32_000) {
			err = fmt.Errorf("%+v", found)
		}
		return err
	}})
	action, err := s.Request(t.Context(), ops.Request{
		Kind: ops.Replay, Who: "ann", Reason: "INC-17",
		Filter: consumer.DeadLetterFilter{Consumer: "billing"}, Expect: 32_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.SQL.ExecContext(t.Context(), `UPDATE operator_results SET outcome = 'parked' WHERE number < 8000`); err != nil {
		t.Fatal(err)
	}
	return append(list,
		read{"failures of an action", 500, func(ctx context.Context) error {
			_, err := s.Results(ctx, ops.ResultFilter{Action: action.ID, Outcome: observe.Parked})
			return err
		}},
		read{"parked messages", 500, func(ctx context.Context) error {
			_, err := s.Outbox().Parked(ctx, outbox.ParkedFilter{Limit: 51})
			return err
		}},
		// Of billing's letters 10,001 are counted, and 250 of the 3,100 messages in each of 64 shards. MariaDB and
		// MySQL copy what they count.
		read{"status", 150_000, func(ctx context.Context) error { _, err := s.Status(ctx); return err }},
	)
}
