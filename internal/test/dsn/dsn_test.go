package dsn_test

import (
	"testing"

	"github.com/txonce/txonce/internal/test/dsn"
)

func TestParsePostgres(t *testing.T) {
	for in, want := range map[string]struct {
		dsn.Postgres
		network, address string
	}{
		"postgres://u:p@127.0.0.1:5433/d?sslmode=disable": {dsn.Postgres{Host: "127.0.0.1", Port: "5433", User: "u", Database: "d"}, "tcp", "127.0.0.1:5433"},
		"postgresql://[::1]/d": {
			dsn.Postgres{Host: "::1", Port: "5432", Database: "d"},
			"tcp", "[::1]:5432",
		},
		"postgres://u@/d?host=/run/pg&port=1": {dsn.Postgres{Host: "/run/pg", Port: "1", User: "u", Database: "d"}, "unix", "/run/pg/.s.PGSQL.1"},
		"host=h port=7 user=u dbname='d'":     {dsn.Postgres{Host: "h", Port: "7", User: "u", Database: "d"}, "tcp", "h:7"},
	} {
		got, err := dsn.ParsePostgres(in)
		network, address := got.Address()
		if err != nil || got != want.Postgres || network != want.network || address != want.address {
			t.Errorf("%s: %+v, %s %s, %v; want %+v", in, got, network, address, err, want)
		}
	}
	for _, in := range []string{"nonsense", "", "postgres:///d", "postgres://%"} {
		if got, err := dsn.ParsePostgres(in); err == nil {
			t.Errorf("%q was read as %+v", in, got)
		}
	}
}

func TestParseMySQL(t *testing.T) {
	for in, want := range map[string]dsn.MySQL{
		"root@tcp(127.0.0.1:3306)/": {User: "root@", Network: "tcp", Address: "127.0.0.1:3306"},
		"u:p@ss/w@unix(/run/my.sock)/d?a=b": {
			User: "u:p@ss/w@", Network: "unix", Address: "/run/my.sock",
			Database: "d", Parameters: "a=b",
		},
	} {
		got, err := dsn.ParseMySQL(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"nonsense", "", "root@/d", "tcp(1:2/d"} {
		if got, err := dsn.ParseMySQL(in); err == nil {
			t.Errorf("%q was read as %+v", in, got)
		}
	}
	m, _ := dsn.ParseMySQL("tcp(a:1)/d")
	if got := m.With("x=1").With("y=2").String(); got != "tcp(a:1)/d?x=1&y=2" {
		t.Errorf("with parameters it is %s", got)
	}
}
