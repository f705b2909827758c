package dashboard_test

import (
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
	"github.com/txonce/txonce/observe"
)

func TestRates(t *testing.T) {
	t.Parallel()
	for name, open := range databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for _, name := range []string{"billing", "mailer"} {
				if err := db.Consumer(t, name).Process(t.Context(), dashboardtest.Message("order-1")); err != nil {
					t.Fatal(err)
				}
			}
			status, err := db.Operator().Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			minute := status.Now.Truncate(time.Minute)
			if left := minute.Add(time.Minute).Sub(status.Now); left < 10*time.Second {
				// the page would show the next minute
				<-time.After(left)
				minute = minute.Add(time.Minute)
			}
			var rows []ops.Activity
			add := func(name, node string, ago time.Duration, processed, duplicate, retried int64,
				paused observe.Cause,
			) {
				rows = append(rows, ops.Activity{Minute: minute.Add(-ago), Consumer: name, Node: node, Paused: paused, Messages: map[observe.Outcome]int64{
					observe.Processed: processed, observe.Duplicate: duplicate, observe.Retried: retried,
				}})
			}
			add("billing", "one", time.Minute, 700, 20, 10, "")
			add("billing", "two", time.Minute, 504, 0, 0, "")
			add("billing", "two", 2*time.Minute, 366, 0, 400, "")
			add("billing", "two", 0, 1, 0, 0, "") // the minute that goes on is no rate yet
			add("mailer", "one", 0, 0, 0, 0, observe.CauseDatabase)
			add("shipping", "gone", 10*time.Minute, 5, 0, 0, observe.CauseBudget)
			if err := db.Activity().RecordActivity(t.Context(), rows); err != nil {
				t.Fatal(err)
			}
			s := newSite(t, dashboard.Config{Store: db.Operator(), Activity: db.Activity()})
			s.want("", 200, "1,204", "highest 1,204, latest 1,204", "1.0 %", "20.5 %", "● running",
				"mailer: paused (database)", "▲ paused: database")
		})
	}
}
