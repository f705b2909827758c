// Package architecture holds no code, only the test that packages import what they may: dependencies point inward.
//
// The core (dedup, outbox, consumer) knows no database and no broker, so that a handler can be tested without either and a
// service pulls in only the drivers that it uses. An adapter knows the core and the library of one database or one broker,
// and no other adapter, so that any store works with any broker. A new package needs a row in the table below.
package architecture_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/txonce/txonce/"

// row says what a package may import beside the standard library. "x/..." stands for x and everything below it.
type row struct {
	pkg string
	may []string
}

// rows are searched in order: the first one that covers a package counts. A package without a row fails the test, and so does
// a row without a package.
var rows = []row{
	{"dedup", []string{"internal/await", "internal/backoff"}},
	{"dedup/deduptest", []string{"dedup"}},
	{"outbox", []string{"internal/await", "internal/backoff"}},
	{"outbox/outboxtest", []string{"outbox", "internal/shares"}},
	{"consumer", []string{"dedup", "outbox", "internal/await", "internal/backoff"}},
	{"consumer/consumertest", []string{"consumer", "dedup", "outbox", "dedup/deduptest"}},

	{"adapters/pgxstore", store("github.com/jackc/pgx/v5/...")},
	{"adapters/sqlstore", store("adapters/sqlstore/internal/...")}, // imports no driver
	{"adapters/sqlstore/internal/engine", store()},
	{"adapters/sqlstore/internal/...", store("adapters/sqlstore/internal/engine")},
	{"adapters/kafka", edge("github.com/IBM/sarama")},
	{"adapters/awssqs", edge("github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/...")},
	{"adapters/awssqs/awssqstest", []string{"adapters/awssqs", "github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/..."}},
	{"adapters/rabbitmq", edge("github.com/rabbitmq/amqp091-go")},
	{"adapters/rabbitmq/rabbitmqtest", []string{"adapters/rabbitmq", "github.com/rabbitmq/amqp091-go"}},
	{"adapters/watermilltx", edge("github.com/ThreeDotsLabs/watermill/...", "github.com/ThreeDotsLabs/watermill-sql/v3/...")},

	{"migrations", nil},
	{"internal/await", nil},
	{"internal/backoff", nil},
	{"internal/dialect", nil},
	{"internal/claims", []string{"dedup", "outbox"}},
	{"internal/columns", []string{"dedup", "outbox", "consumer", "internal/claims"}},
	{"internal/debounce", nil},
	{"internal/shares", nil},
	{"internal/lanes", []string{"consumer"}},
	{"internal/breaker", []string{"outbox", "github.com/sony/gobreaker/v2"}},

	// Programs and what only tests import may use everything. Nothing imports them, because no other row allows it.
	{"examples/...", []string{"..."}},
	{"internal/test/...", []string{"..."}},
}

// edge is what a broker's or HTTP adapter may import: the core and one SDK, and never another adapter.
func edge(sdk ...string) []string {
	return append([]string{"dedup", "outbox", "consumer", "internal/await", "internal/backoff", "internal/lanes", "internal/breaker"}, sdk...)
}

// store is what a database's adapter may import.
func store(sdk ...string) []string {
	return append([]string{"dedup", "outbox", "consumer", "migrations", "internal/await", "internal/backoff", "internal/dialect", "internal/claims", "internal/columns", "internal/debounce", "internal/shares"}, sdk...)
}

// A pkg is what `go list -json` tells of one package.
type pkg struct {
	ImportPath string
	Standard   bool
	Imports    []string
}

func TestImports(t *testing.T) {
	packages := list(t)
	for _, arrow := range forbidden(packages, rows) {
		t.Error(arrow)
	}
	for _, row := range unused(packages, rows) {
		t.Error(row)
	}
	ours := slices.DeleteFunc(packages, func(p pkg) bool { return !strings.HasPrefix(p.ImportPath, module) })
	if len(ours) < 3 {
		t.Errorf("go list named %d packages of this module; the test has looked at nothing", len(ours))
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var packages []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// forbidden returns a line for every arrow that no row allows, and for every package without a row.
func forbidden(packages []pkg, rows []row) []string {
	standard := map[string]bool{}
	for _, p := range packages {
		standard[p.ImportPath] = p.Standard
	}
	var lines []string
	for _, p := range packages {
		name, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours {
			continue
		}
		i := slices.IndexFunc(rows, func(r row) bool { return covers(r.pkg, name) })
		if i < 0 {
			lines = append(lines, name+" has no row in the table of packages")
			continue
		}
		for _, path := range p.Imports {
			imported := strings.TrimPrefix(path, module)
			allowed := standard[path] || slices.ContainsFunc(rows[i].may, func(may string) bool { return covers(may, imported) })
			if !allowed {
				lines = append(lines, fmt.Sprintf("%s must not import %s", name, imported))
			}
		}
	}
	return lines
}

// unused returns a line for every row that covers no package.
func unused(packages []pkg, rows []row) []string {
	var lines []string
	for _, r := range rows {
		covered := func(p pkg) bool { return covers(r.pkg, strings.TrimPrefix(p.ImportPath, module)) }
		if !slices.ContainsFunc(packages, covered) {
			lines = append(lines, "the row of "+r.pkg+" covers no package")
		}
	}
	return lines
}

func covers(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	prefix, below := strings.CutSuffix(pattern, "/...")
	return path == prefix || below && strings.HasPrefix(path, prefix+"/")
}

// A test of direction that cannot fail proves nothing: here are graphs with wrong arrows.
func TestForbiddenArrows(t *testing.T) {
	const pgx, sarama = "github.com/jackc/pgx/v5/pgconn", "github.com/IBM/sarama"
	for _, test := range []struct {
		name    string
		pkg     string
		imports []string
		want    []string
	}{
		{"core on the standard library", "dedup", []string{"context", "database/sql"}, nil},
		{"consumer on dedup and outbox", "consumer", []string{"context", module + "dedup", module + "outbox"}, nil},
		{"store on its SDK", "adapters/pgxstore", []string{module + "dedup", module + "internal/dialect", pgx}, nil},
		{"example on everything", "examples/quickstart", []string{module + "adapters/kafka", pgx, sarama}, nil},

		{"core on a dependency", "dedup", []string{pgx}, []string{"dedup must not import " + pgx}},
		{"core outward", "dedup", []string{module + "consumer"}, []string{"dedup must not import consumer"}},
		{"core sideways", "outbox", []string{module + "dedup"}, []string{"outbox must not import dedup"}},
		{"consumer on an adapter", "consumer", []string{module + "adapters/kafka"}, []string{"consumer must not import adapters/kafka"}},
		{"suite on a dependency", "dedup/deduptest", []string{"github.com/google/go-cmp/cmp"}, []string{"dedup/deduptest must not import github.com/google/go-cmp/cmp"}},
		{"adapter on adapter", "adapters/kafka", []string{module + "adapters/pgxstore"}, []string{"adapters/kafka must not import adapters/pgxstore"}},
		{"adapter on another's SDK", "adapters/kafka", []string{sarama, pgx}, []string{"adapters/kafka must not import " + pgx}},
		{"sqlstore on a driver", "adapters/sqlstore", []string{"modernc.org/sqlite"}, []string{"adapters/sqlstore must not import modernc.org/sqlite"}},
		{"store on the tests' servers", "adapters/pgxstore", []string{module + "internal/test/testdb"}, []string{"adapters/pgxstore must not import internal/test/testdb"}},
		{"migrations on the core", "migrations", []string{module + "dedup"}, []string{"migrations must not import dedup"}},
		{"name that only begins alike", "adapters/kafka", []string{module + "consumerx"}, []string{"adapters/kafka must not import consumerx"}},
		{"package without a row", "util", nil, []string{"util has no row in the table of packages"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			graph := []pkg{
				{ImportPath: "context", Standard: true},
				{ImportPath: "database/sql", Standard: true, Imports: []string{"context"}},
				{ImportPath: sarama, Imports: []string{"context", pgx}}, // what a dependency imports is its own affair
				{ImportPath: module + test.pkg, Imports: test.imports},
			}
			if diff := cmp.Diff(test.want, forbidden(graph, rows)); diff != "" {
				t.Errorf("forbidden arrows (-want +got):\n%s", diff)
			}
		})
	}
}
