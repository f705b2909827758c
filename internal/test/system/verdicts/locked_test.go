package verdicts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// Other sessions hold the rows that eight messages of a batch of twenty need. The other twelve are committed meanwhile:
// only few of the eight wait for as long as the session's limit for locks allows. The eight are committed afterwards.
// Each has one effect, and none is parked.
func TestLockedRowsHoldUpNoStranger(t *testing.T) {
	const inBatch = 20
	const limit = 900 * time.Millisecond // of a second, as MySQL and MariaDB count it
	locked := []int{1, 2, 5, 7, 9, 12, 15, 18}
	for _, tc := range []struct {
		name    string
		open    func(t *testing.T) *database
		session string
	}{
		{"pgxstore", func(t *testing.T) *database { return pgxOn(t, testdb.Postgres18(t)) }, "&lock_timeout=1000"},
		{
			"sqlstore, PostgreSQL", func(t *testing.T) *database { return postgresOn(t, testdb.Postgres(t)) },
			"&lock_timeout=1000",
		},
		{"sqlstore, MariaDB", mysqlOn, "innodb_lock_wait_timeout=1"},
		{"sqlstore, MySQL", mysqlOn, "innodb_lock_wait_timeout=1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			d := tc.open(t)
			for i := range inBatch {
				mustExec(t, d.admin, fmt.Sprintf(`INSERT INTO hot VALUES (%d, 0)`, 100+i))
			}
			holder, err := d.admin.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = holder.Rollback() }()
			for _, i := range locked {
				if _, err := holder.ExecContext(t.Context(), fmt.Sprintf(`UPDATE hot SET n = 1 WHERE id = %d`,
					100+i)); err != nil {
					t.Fatal(err)
				}
			}
			longWaits := 0
			w := d.start(t, func(_ context.Context, run exec, m *consumer.Message) error {
				began := time.Now()
				if err := run(`UPDATE hot SET n = n + 1 WHERE id = ` + m.ID); err != nil {
					if time.Since(began) >= limit {
						longWaits++
					}
					return err
				}
				return run(`INSERT INTO effects (name) VALUES ('` + m.ID + `')`)
			}, settings{session: tc.session})
			var left, strangers []*consumer.Message
			for i := range inBatch {
				left = append(left, message(fmt.Sprint(100+i)))
			}
			process := func() { // as a broker does: what was not acknowledged comes again
				var again []*consumer.Message
				for i, err := range w.ProcessBatch(t.Context(), left) {
					if err != nil {
						again = append(again, left[i])
					}
				}
				left = again
			}
			for range 10 {
				process()
				strangers = slices.DeleteFunc(slices.Clone(left), func(m *consumer.Message) bool {
					return slices.ContainsFunc(locked, func(i int) bool { return m.ID == fmt.Sprint(100+i) })
				})
				if len(strangers) == 0 {
					break
				}
			}
			// MySQL has no waits of less than a second.
			if !strings.Contains(tc.name, "MySQL") && longWaits > 5 {
				t.Errorf("%d messages waited for the whole limit", longWaits)
			}
			if len(strangers) > 0 || len(left) != len(locked) {
				t.Errorf("%d strangers wait, %d messages are left", len(strangers), len(left))
			}
			if err := holder.Commit(); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); len(left) > 0 && time.Now().Before(end); {
				process()
			}
			for i := range inBatch {
				if n := d.effects(t, fmt.Sprint(100+i)); n != 1 {
					t.Errorf("%d has %d effects", 100+i, n)
				}
			}
			if parked := letters(t, w); len(parked) > 0 {
				t.Errorf("parked: %v", parked)
			}
			t.Logf("%d long waits", longWaits)
		})
	}
}
