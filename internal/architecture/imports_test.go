// Package architecture holds no code, only the test that the arrows between packages point where ARCHITECTURE.md says.
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

// A row says what a package may import beside the standard library. "x/..." stands for x and all below it.
type row struct {
	pkg string
	may []string
}

// rows is the table of ARCHITECTURE.md section 1; the first row that covers a package is its own. A package without a row
// fails the test: where it stands is decided before it is written.
var rows = []row{
	{"dedup", nil},
	{"dedup/deduptest", []string{"dedup"}},
	{"outbox", nil},
	{"outbox/outboxtest", []string{"outbox", "internal/shares"}},
	{"consumer", []string{"dedup", "outbox"}},
	{"consumer/consumertest", []string{"consumer", "dedup", "outbox", "dedup/deduptest"}},

	{"adapters/pgxstore", store("github.com/jackc/pgx/v5/...")},
	{"adapters/sqlstore", store()}, // imports no driver
	{"adapters/kafka", edge("github.com/IBM/sarama")},
	{"adapters/awssqs", edge("github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/...")},
	{"adapters/awssqs/awssqstest", []string{"adapters/awssqs", "github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/..."}},
	{"adapters/rabbitmq", edge("github.com/rabbitmq/amqp091-go")},
	{"adapters/rabbitmq/rabbitmqtest", []string{"adapters/rabbitmq", "github.com/rabbitmq/amqp091-go"}},
	{"adapters/watermilltx", edge("github.com/ThreeDotsLabs/watermill/...", "github.com/ThreeDotsLabs/watermill-sql/v3/...")},
	{"adapters/webhook/...", edge("adapters/webhook")}, // what verifies one sender's requests builds on webhook itself
	{"adapters/httpidem", edge()},

	{"migrations", nil},
	{"internal/dialect", nil},
	{"internal/claims", []string{"dedup"}},
	{"internal/debounce", nil},
	{"internal/shares", nil},
	{"internal/lanes", []string{"consumer"}},
	{"internal/breaker", []string{"outbox", "github.com/sony/gobreaker/v2"}},
	{"internal/architecture", nil},

	// Programs and what only tests import may use everything; nothing imports them, since no other row allows it.
	{"cmd/...", []string{"..."}},
	{"examples/...", []string{"..."}},
	{"internal/features", []string{"..."}},
	{"internal/leaktest", []string{"go.uber.org/goleak"}},
	{"internal/mutants/...", []string{"..."}},
	{"internal/rabbitserver", nil},
	{"internal/relaychaos", []string{"..."}},
	{"internal/services", []string{"..."}},
	{"internal/soak", []string{"..."}},
	{"internal/test/...", []string{"..."}},
	{"internal/testdb", []string{"..."}},
	{"internal/wireproxy", []string{"..."}},
}

// edge is what a broker's or HTTP adapter may import: the core and one SDK, and never another adapter.
func edge(sdk ...string) []string {
	return append([]string{"dedup", "outbox", "consumer", "internal/lanes", "internal/breaker"}, sdk...)
}

// store is what a database's adapter may import.
func store(sdk ...string) []string {
	return append([]string{"dedup", "outbox", "consumer", "migrations", "internal/dialect", "internal/claims", "internal/debounce", "internal/shares"}, sdk...)
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
	ours := slices.DeleteFunc(packages, func(p pkg) bool { return !strings.HasPrefix(p.ImportPath, module) })
	if len(ours) < 3 {
		t.Errorf("go list named %d packages of this module; the test has looked at nothing", len(ours))
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports", "./...")
	cmd.Dir = "../.."
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
			lines = append(lines, name+" is in no row of ARCHITECTURE.md")
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
		{"sender on webhook", "adapters/webhook/stripehook", []string{module + "adapters/webhook"}, nil},

		{"core on a dependency", "dedup", []string{pgx}, []string{"dedup must not import " + pgx}},
		{"core outward", "dedup", []string{module + "consumer"}, []string{"dedup must not import consumer"}},
		{"core sideways", "outbox", []string{module + "dedup"}, []string{"outbox must not import dedup"}},
		{"consumer on an adapter", "consumer", []string{module + "adapters/kafka"}, []string{"consumer must not import adapters/kafka"}},
		{"suite on a dependency", "dedup/deduptest", []string{"github.com/google/go-cmp/cmp"}, []string{"dedup/deduptest must not import github.com/google/go-cmp/cmp"}},
		{"adapter on adapter", "adapters/kafka", []string{module + "adapters/pgxstore"}, []string{"adapters/kafka must not import adapters/pgxstore"}},
		{"adapter on another's SDK", "adapters/kafka", []string{sarama, pgx}, []string{"adapters/kafka must not import " + pgx}},
		{"sqlstore on a driver", "adapters/sqlstore", []string{"modernc.org/sqlite"}, []string{"adapters/sqlstore must not import modernc.org/sqlite"}},
		{"store on the tests' servers", "adapters/pgxstore", []string{module + "internal/testdb"}, []string{"adapters/pgxstore must not import internal/testdb"}},
		{"migrations on the core", "migrations", []string{module + "dedup"}, []string{"migrations must not import dedup"}},
		{"name that only begins alike", "adapters/webhook", []string{module + "consumerx"}, []string{"adapters/webhook must not import consumerx"}},
		{"package in no row", "util", nil, []string{"util is in no row of ARCHITECTURE.md"}},
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
