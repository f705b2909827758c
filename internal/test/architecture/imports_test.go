// Package architecture has only a test: it checks that packages import only what they may, so that dependencies point
// inward.
//
// The core (dedup, outbox, consumer) knows no database and no broker, so a handler can be tested without them, and a
// service depends only on the drivers that it uses. An adapter knows the core and the library of one database or
// broker, and no other adapter, so every store works with every broker. A new package needs a row in the table below.
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

// row lists what a package may import besides the standard library. "x/..." means x and everything below it.
type row struct {
	pkg string
	may []string
}

// The first row that covers a package applies. The test fails for a package without a row and for a row without a
// package.
var rows = []row{
	{"observe", nil},
	{"dedup", []string{"observe", "internal/await", "internal/backoff", "internal/hooks", "internal/idtime", "internal/usercode"}},
	{"dedup/driver", []string{"dedup", "observe", "internal/idtime"}},
	{"dedup/deduptest", []string{"dedup", "internal/names", "dedup/driver", "observe", "internal/await", "outbox", "outbox/outboxtest"}},
	{"outbox", nil},
	{"outbox/driver", []string{"outbox", "internal/outgoing"}},
	{"outbox/relay", []string{"outbox", "outbox/driver", "dedup/driver", "observe", "internal/hooks", "internal/losses", "internal/await", "internal/backoff", "internal/tokens", "internal/usercode"}},
	{"outbox/outboxtest", []string{"outbox", "outbox/driver", "outbox/relay", "internal/await", "internal/backoff", "internal/shares", "internal/usercode"}},
	{"calls/callstest", nil},
	{"calls", []string{"dedup", "dedup/driver", "outbox", "outbox/driver", "internal/outgoing", "internal/usercode"}},
	{"consumer", []string{"consumer/internal/decide", "consumer/internal/traced", "dedup", "dedup/driver", "outbox", "outbox/driver", "observe", "internal/aliases", "internal/faults", "internal/hooks", "internal/losses", "internal/await", "internal/backoff", "internal/names", "internal/outgoing", "internal/tokens", "internal/usercode", "internal/idtime"}},
	{"consumer/internal/traced", nil},
	{"consumer/chaos", []string{"consumer", "consumer/driver", "internal/usercode"}},
	{"consumer/driver", []string{"consumer", "consumer/internal/traced", "dedup", "dedup/driver", "observe", "internal/hooks"}},
	{"consumer/internal/decide", []string{"dedup", "dedup/driver", "observe", "internal/faults"}},
	{"consumer/ops", []string{"consumer", "consumer/driver", "consumer/internal/decide", "dedup", "dedup/driver", "outbox", "observe", "internal/httpkey"}},
	{"consumer/ops/audit", []string{"consumer", "dedup", "outbox", "internal/outgoing", "internal/sqlrows"}},
	{"consumer/ops/opstest", []string{"consumer", "consumer/driver", "consumer/ops", "dedup", "dedup/driver", "dedup/deduptest", "outbox", "outbox/driver", "observe", "internal/httpkey"}},
	{"consumer/consumertest", []string{"consumer", "consumer/driver", "observe", "dedup", "dedup/driver", "outbox", "outbox/driver", "outbox/relay", "dedup/deduptest", "internal/await", "internal/backoff", "internal/sim", "internal/usercode"}},

	{"adapters/pgxstore", store("adapters/pgxstore/internal/interleave", "adapters/pgxstore/internal/pgxrows",
		"github.com/jackc/pgx/v5/...")},
	{"adapters/pgxstore/internal/interleave", []string{"internal/dialect", "adapters/pgxstore/internal/pgxrows", "github.com/jackc/pgx/v5/..."}},
	{"adapters/pgxstore/internal/pgxrows", []string{"github.com/jackc/pgx/v5/..."}},
	{"adapters/sqlstore", store("adapters/sqlstore/internal/...")}, // imports no driver
	{"adapters/sqlstore/internal/engine", store()},
	{"adapters/sqlstore/internal/...", store("adapters/sqlstore/internal/engine")},
	{"adapters/sqlstore/gormstore", store("adapters/sqlstore", "gorm.io/gorm/...")},
	{"adapters/kafka", edge("github.com/IBM/sarama")},
	{"adapters/awssqs", edge("github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/...")},
	{"adapters/awssqs/awslambda", append([]string{"adapters/awssqs"}, edge("github.com/aws/aws-sdk-go-v2/...")...)},
	{"adapters/awssqs/awssqstest", []string{"adapters/awssqs", "github.com/aws/aws-sdk-go-v2/...", "github.com/aws/smithy-go/..."}},
	{"adapters/rabbitmq", edge("github.com/rabbitmq/amqp091-go")},
	{"adapters/webhook", edge("adapters/webhook/internal/...", "internal/aliases")},
	{"adapters/webhook/internal/bodymac", edge("adapters/webhook", "adapters/webhook/internal/strict")},
	{"adapters/webhook/internal/...", edge("adapters/webhook")},
	{"adapters/webhook/applehook/appletest", edge("adapters/webhook/applehook")},
	{"adapters/webhook/...", edge("adapters/webhook", "adapters/webhook/internal/...", "internal/tokens")},
	{"adapters/httpidem", edge("internal/idtime", "internal/httpkey", "internal/losses", "internal/outgoing")}, // net/http is the SDK
	{"adapters/httpidem/storm", nil},
	{"adapters/cli", []string{"adapters/httpidem/storm", "consumer", "consumer/ops", "consumer/ops/audit", "dedup", "dedup/driver", "outbox", "observe", "migrations", "internal/httpkey", "internal/release", "internal/sqlrows", "github.com/spf13/cobra", "github.com/rogpeppe/go-internal/diff", "github.com/mattn/go-isatty"}},
	{"adapters/watermilltx", edge("github.com/ThreeDotsLabs/watermill/...", "github.com/ThreeDotsLabs/watermill-sql/v3/...")},
	// telemetry knows the hooks of the two adapters that need only the standard library
	{"adapters/telemetry", []string{"adapters/httpidem", "adapters/webhook", "consumer", "consumer/driver", "consumer/ops", "dedup", "observe", "outbox", "outbox/relay", "internal/release", "internal/usercode", "go.opentelemetry.io/otel/..."}},
	{"adapters/telemetry/monitoring/...", nil},

	{"adapters/dashboard", []string{"consumer", "consumer/ops", "dedup", "observe", "outbox", "internal/usercode"}},

	// oncevet knows txonce's packages by name only, so that whoever installs it gets x/tools and nothing else
	{"cmd/oncevet", []string{"cmd/oncevet/oncecheck", "golang.org/x/tools/..."}},
	{"cmd/oncevet/oncecheck", []string{"golang.org/x/tools/..."}},
	{"cmd/oncevet/golangci", []string{"cmd/oncevet/oncecheck", "golang.org/x/tools/...", "github.com/golangci/plugin-module-register/register"}},

	{"migrations", nil},
	{"internal/release", nil},
	{"internal/sim", nil},
	{"internal/aliases", nil},
	{"internal/await", nil},
	{"internal/backoff", nil},
	{"internal/httpkey", nil},
	{"internal/hooks", []string{"observe", "internal/usercode"}},
	{"internal/idtime", nil},
	{"internal/losses", []string{"dedup", "dedup/driver", "internal/usercode", "observe"}},
	{"internal/names", []string{"dedup"}},
	{"internal/outgoing", []string{"internal/idtime"}},
	{"internal/tokens", nil},
	{"internal/dialect", nil},
	{"internal/faults", []string{"dedup/driver"}},
	{"internal/claims", []string{"dedup", "internal/names", "dedup/driver", "outbox/driver"}},
	{"internal/columns", []string{"observe", "dedup", "dedup/driver", "outbox", "outbox/driver", "consumer", "internal/claims", "internal/usercode"}},
	{"internal/operator", []string{"dedup", "dedup/driver", "outbox", "consumer", "consumer/ops", "observe", "internal/columns", "internal/dialect", "internal/outgoing", "internal/sqlrows"}},
	{"internal/positions", []string{"dedup", "dedup/driver", "internal/claims", "internal/dialect", "internal/operator", "internal/sqlrows"}},
	{"internal/debounce", nil},
	{"internal/pgrelay", []string{"dedup", "dedup/driver", "outbox", "outbox/driver", "internal/columns", "internal/dialect", "internal/shares", "internal/wakes", "internal/watermark"}},
	{"internal/wakes", nil},
	{"internal/shares", []string{"outbox", "outbox/driver"}},
	{"internal/sqlrows", nil},
	{"internal/usercode", nil},
	{"internal/watermark", nil},
	{"internal/counts", nil},
	{"internal/deliver", []string{"consumer", "consumer/driver", "observe", "internal/hooks", "internal/usercode"}},
	{"internal/publishing", []string{"outbox", "internal/usercode"}},
	{"internal/risks", nil},

	// Programs and packages that only tests import may import everything. No other package can import them, because no
	// row allows it.
	{"adapters/rabbitmq/internal/rabbitmqtest", []string{"..."}},
	{"adapters/sqlstore/test/...", []string{"..."}},
	{"adapters/telemetry/internal/provoke", []string{"..."}},
	{"bench", []string{"..."}},
	{"cmd/...", []string{"..."}},
	{"examples/...", []string{"..."}},
	{"internal/test/...", []string{"..."}},
}

// edge returns the imports of an adapter for a broker or HTTP: the core and one SDK, but no other adapter.
func edge(sdk ...string) []string {
	return append([]string{
		"dedup", "dedup/driver", "outbox", "outbox/driver", "consumer", "consumer/driver", "observe",
		"internal/release", "internal/hooks", "internal/await", "internal/backoff", "internal/counts",
		"internal/deliver", "internal/publishing", "internal/risks", "internal/usercode",
	}, sdk...)
}

// store returns the imports of an adapter for a database.
func store(sdk ...string) []string {
	return append([]string{
		"dedup", "dedup/driver", "outbox", "outbox/driver", "consumer", "consumer/driver",
		"consumer/ops", "observe", "internal/release", "internal/operator", "migrations", "internal/await",
		"internal/backoff", "internal/dialect", "internal/faults", "internal/claims", "internal/columns",
		"internal/debounce", "internal/pgrelay", "internal/positions", "internal/shares", "internal/sqlrows",
		"internal/usercode", "internal/wakes",
	}, sdk...)
}

// A pkg is what `go list -json` prints about a package.
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

// jitterless may import math/rand: they draw names and tokens, choose at random, or are for tests. All others get what
// varies their waits from internal/backoff, or a simulation could not repeat a run.
var jitterless = []string{
	"internal/backoff", "internal/operator", "calls", "calls/callstest", "consumer/ops/audit", "consumer/consumertest",
	"consumer/chaos", "internal/sim", "dedup/deduptest", "outbox/outboxtest", "adapters/awssqs/awssqstest", "adapters/httpidem/storm",
	"adapters/pgxstore",
}

func TestJitterHasOneSource(t *testing.T) {
	found := map[string]bool{}
	for _, p := range list(t) {
		name, ours := strings.CutPrefix(p.ImportPath, module)
		i := slices.IndexFunc(rows, func(r row) bool { return covers(r.pkg, name) })
		if !ours || !slices.Contains(p.Imports, "math/rand") && !slices.Contains(p.Imports, "math/rand/v2") ||
			i >= 0 && slices.Equal(rows[i].may, []string{"..."}) { // a program, or for tests
			continue
		}
		if found[name] = true; !slices.Contains(jitterless, name) {
			t.Errorf("%s imports math/rand: if a wait varies, use internal/backoff.Draw; otherwise name the package in jitterless", name)
		}
	}
	for _, name := range jitterless {
		if !found[name] {
			t.Errorf("%s is in jitterless and does not import math/rand", name)
		}
	}
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Standard,Imports", module+"...")
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

// forbidden returns a line for every import that no row allows, and for every package without a row.
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
			allowed := standard[path] || slices.ContainsFunc(rows[i].may,
				func(may string) bool { return covers(may, imported) })
			if !allowed {
				lines = append(lines, fmt.Sprintf("%s must not import %s", name, imported))
			}
		}
	}
	return lines
}

// unused returns a line for every row without a package.
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

// The test must be able to fail: these graphs have forbidden imports.
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
		{
			"adapter on the relay", "adapters/kafka",
			[]string{module + "outbox/relay"},
			[]string{"adapters/kafka must not import outbox/relay"},
		},
		{"core sideways", "outbox", []string{module + "dedup"}, []string{"outbox must not import dedup"}},
		{
			"consumer on an adapter", "consumer",
			[]string{module + "adapters/kafka"},
			[]string{"consumer must not import adapters/kafka"},
		},
		{
			"suite on a dependency", "dedup/deduptest",
			[]string{"github.com/google/go-cmp/cmp"},
			[]string{"dedup/deduptest must not import github.com/google/go-cmp/cmp"},
		},
		{
			"adapter on adapter", "adapters/kafka",
			[]string{module + "adapters/pgxstore"},
			[]string{"adapters/kafka must not import adapters/pgxstore"},
		},
		{
			"adapter on another's SDK", "adapters/kafka",
			[]string{sarama, pgx},
			[]string{"adapters/kafka must not import " + pgx},
		},
		{
			"sqlstore on a driver", "adapters/sqlstore",
			[]string{"modernc.org/sqlite"},
			[]string{"adapters/sqlstore must not import modernc.org/sqlite"},
		},
		{
			"store on the tests' servers", "adapters/pgxstore",
			[]string{module + "internal/test/testdb"},
			[]string{"adapters/pgxstore must not import internal/test/testdb"},
		},
		{
			"migrations on the core", "migrations",
			[]string{module + "dedup"},
			[]string{"migrations must not import dedup"},
		},
		{
			"name that only begins alike", "adapters/kafka",
			[]string{module + "consumerx"},
			[]string{"adapters/kafka must not import consumerx"},
		},
		{"package without a row", "util", nil, []string{"util has no row in the table of packages"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			graph := []pkg{
				{ImportPath: "context", Standard: true},
				{ImportPath: "database/sql", Standard: true, Imports: []string{"context"}},
				{ImportPath: sarama, Imports: []string{"context", pgx}}, // the imports of a dependency do not matter
				{ImportPath: module + test.pkg, Imports: test.imports},
			}
			if diff := cmp.Diff(test.want, forbidden(graph, rows)); diff != "" {
				t.Errorf("forbidden arrows (-want +got):\n%s", diff)
			}
		})
	}
}
