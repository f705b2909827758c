package sqlstore_test

import (
	"os"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/testdb"
)

// The statements that docs/versions.md shows work on the databases that it names.
func TestVersionsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	table := `CREATE TABLE subscriptions (id varchar(50) PRIMARY KEY, status varchar(50), version bigint)`
	postgres, mysql := openPostgres(t, testdb.Postgres18(t)).db, openMySQL(t).db
	exec(t, postgres, table)
	exec(t, mysql, table)
	ran := map[string]int{}
	for _, block := range strings.Split(string(page), "```sql\n")[1:] {
		statement, _, _ := strings.Cut(block, "```")
		names, _, _ := strings.Cut(strings.TrimPrefix(statement, "-- "), "\n")
		db := postgres
		if strings.HasPrefix(names, "MySQL") {
			db = mysql
		}
		exec(t, db, statement)
		ran[names]++
		if strings.Contains(statement, "INSERT") {
			exec(t, db, strings.ReplaceAll(strings.ReplaceAll(statement, "17", "16"), "'active'", "'older'"))
		}
	}
	if ran["PostgreSQL, SQLite"] != 1 || ran["PostgreSQL"] != 2 || ran["MySQL, MariaDB"] != 1 {
		t.Errorf("blocks of SQL: %v", ran)
	}
	if got := stringsOf(t, postgres, `SELECT id || status || version FROM subscriptions ORDER BY id`); strings.Join(got,
		" ") != "sub_1active17 sub_2active17" {
		t.Errorf("PostgreSQL has %v", got)
	}
	if got := stringsOf(t, mysql, `SELECT CONCAT(id, status, version) FROM subscriptions`); strings.Join(got,
		" ") != "sub_1active17" {
		t.Errorf("MySQL has %v", got)
	}
}
