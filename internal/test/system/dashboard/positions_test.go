package dashboard_test

import (
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

func TestADatabaseThatWentBackIsShown(t *testing.T) {
	each(t, func(t *testing.T, db *dashboardtest.DB) {
		id := driver.PositionID{Consumer: "billing", Source: "kafka <C1>, group g, topic orders", Partition: 3}
		p := driver.Position{Next: 1_090, Epoch: 7, Suspect: 1_095, Tries: 2}
		p.Rewind = driver.Rewind{From: 2_500, Lost: 1_000, To: 1_090}
		if _, err := db.ChangePosition(t.Context(), id, func(*driver.Position) (*driver.Position, error) { return &p, nil }); err != nil {
			t.Fatal(err)
		}
		s := newSite(t, dashboard.Config{Store: db.Operator()})
		s.want("consumers", 200, "kafka &lt;C1&gt;, group g, topic orders", "partition 3 from 2,500 to 1,090 instead of 1,000",
			">1,410<", ">90<", "partition 3, offset 1,095 (2 in a row)")
		s.want("", 200, "billing: the database went back", "1,410 messages of kafka &lt;C1&gt;", "the source had deleted 90",
			"docs/runbook/DatabaseWentBack.md", "2 processes were killed before offset 1,095 of partition 3")
	})
}
