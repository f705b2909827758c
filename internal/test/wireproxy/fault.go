package wireproxy

import (
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/dsn"
)

// Postgres returns a DSN of the server of direct through a proxy that applies f to the first COMMIT. The proxy ends
// with t, which fails if no COMMIT was sent.
func Postgres(t testing.TB, direct string, f deduptest.Fault) string {
	t.Helper()
	return PostgresEach(t, direct, once(t, f))
}

// PostgresEach is Postgres with a fault for each COMMIT that pick chooses. pick must be safe for concurrent use.
func PostgresEach(t testing.TB, direct string, pick func() (f deduptest.Fault, strike bool)) string {
	t.Helper()
	through, _ := ThroughPostgres(t, direct, Config{Decide: commits(pick)})
	return through
}

// MySQL is like Postgres for MySQL and MariaDB, with DSNs of go-sql-driver/mysql.
func MySQL(t testing.TB, direct string, f deduptest.Fault) string {
	t.Helper()
	return MySQLEach(t, direct, once(t, f))
}

// MySQLEach is MySQL with a fault for each COMMIT that pick chooses. pick must be safe for concurrent use.
func MySQLEach(t testing.TB, direct string, pick func() (f deduptest.Fault, strike bool)) string {
	t.Helper()
	through, _ := ThroughMySQL(t, direct, Config{Decide: commits(pick)})
	return through
}

// once picks the first COMMIT. t fails if none came.
func once(t testing.TB, f deduptest.Fault) func() (deduptest.Fault, bool) {
	var struck atomic.Bool
	t.Cleanup(func() {
		if !struck.Load() {
			t.Errorf("wireproxy: no COMMIT came by: the fault (%v) was never injected", f)
		}
	})
	return func() (deduptest.Fault, bool) { return f, struck.CompareAndSwap(false, true) }
}

// commits decides about the frames that make a server commit.
func commits(pick func() (deduptest.Fault, bool)) func(Frame) Action {
	return func(f Frame) Action {
		if f.FromServer || !f.Commit || !f.answers {
			return Action{}
		}
		fault, strike := pick()
		switch {
		case !strike:
			return Action{}
		case fault == deduptest.CommitLost:
			return Action{Kind: CutBefore}
		case fault == deduptest.AnswerLost:
			return Action{Kind: CutAfter}
		default:
			return Action{Kind: CutLate, For: deduptest.LateBy}
		}
	}
}

// ThroughPostgres starts a proxy for the server of direct, and returns a DSN through it. The proxy ends with t.
func ThroughPostgres(t testing.TB, direct string, cfg Config) (through string, p *Proxy) {
	t.Helper()
	at, err := dsn.ParsePostgres(direct)
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	network, address := at.Address()
	p = start(t, cfg, network, address, func() protocol { return &postgresProtocol{} })
	if u, err := url.Parse(direct); err == nil && strings.Contains(direct, "://") {
		u.Host = p.Addr().String()
		return u.String(), p
	}
	host, port, _ := net.SplitHostPort(p.Addr().String())
	return direct + " host=" + host + " port=" + port, p
}

// ThroughMySQL is ThroughPostgres for MySQL and MariaDB, with DSNs of go-sql-driver/mysql.
func ThroughMySQL(t testing.TB, direct string, cfg Config) (through string, p *Proxy) {
	t.Helper()
	at, err := dsn.ParseMySQL(direct)
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	p = start(t, cfg, at.Network, at.Address, func() protocol { return &mysqlProtocol{} })
	at.Network, at.Address = "tcp", p.Addr().String()
	return at.String(), p
}
