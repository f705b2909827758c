package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
)

// promtool runs promtool in a folder with these rules and tests.
func promtool(t *testing.T, rules, tests string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"rules.yml": rules, "rules_test.yml": tests} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), testdb.Prometheus(t).Promtool, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The files that users get pass. promtool evaluates all rules at each minute of each test, which takes 20 s of a
// processor for the three tests that last for days: only TXONCE_TEST_ALL runs them here. TestMovedThresholdsFail runs
// each test with its rule alone.
func TestRules(t *testing.T) {
	t.Parallel()
	all := files()
	tests := all["rules_test.yml"]
	if !matrix.All() {
		tests = testsYAML(alerts, slices.DeleteFunc(unitTests(),
			func(test unitTest) bool { return strings.HasSuffix(test.at, "h") }))
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", "rules.yml"},
		{"test", "rules", "rules_test.yml"},
	} {
		if out, err := promtool(t, all["rules.yml"], tests, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// A subject of each rule fires, another one is just below the threshold, and the exporter of a third one is started
// again.
func TestEachRuleIsTested(t *testing.T) {
	tested := map[int]bool{}
	for _, test := range unitTests() {
		tested[test.rule] = true
		a := alerts[test.rule]
		for _, subject := range []string{"fires", "below", "restarts"} {
			found := false
			for series, values := range test.series {
				found = found || strings.Contains(series, `="`+subject+`"`) && (subject != "restarts" ||
					strings.Contains(values, "stale"))
			}
			if !found {
				t.Errorf("%s %s: no series %q", a.name, a.severity, subject)
			}
		}
		if a.wait != "" && test.before == "" {
			t.Errorf("%s %s waits for %s, and its test does not look before that", a.name, a.severity, a.wait)
		}
	}
	for i, a := range alerts {
		if !tested[i] {
			t.Errorf("%s %s has no test", a.name, a.severity)
		}
	}
}

var groups = regexp.MustCompile(`\b(?:by|without|on|ignoring) \(([a-z_, ]+)\)`)

// Services may have consumers of one name, and Alertmanager routes by job. Only absent() knows no job.
func TestSumsKeepTheJob(t *testing.T) {
	found := 0
	check := func(name, expr string) {
		for _, group := range groups.FindAllStringSubmatch(expr, -1) {
			found++
			if !strings.HasPrefix(group[0], "by (job") {
				t.Errorf("%s: %s: the sum loses the label job", name, group[0])
			}
		}
	}
	for _, a := range alerts {
		check(a.name, a.expr)
	}
	for _, r := range records {
		check(r.name, r.expr)
	}
	if found < 40 {
		t.Errorf("%d sums: the test sees nothing", found)
	}
}

// comparison finds what an alert compares with.
var comparison = regexp.MustCompile(` (?:>|<|==) ([0-9.]+)`)

// moved returns a with each of its thresholds tenfold and a tenth, and so with its wait. A threshold of 0 becomes 10.
func moved(a alert) map[string]alert {
	all := map[string]alert{}
	for _, at := range comparison.FindAllStringSubmatchIndex(a.expr, -1) {
		var value float64
		if _, err := fmt.Sscan(a.expr[at[2]:at[3]], &value); err != nil {
			panic(err)
		}
		for _, factor := range []float64{10, .1} {
			to := value * factor
			if value == 0 {
				to = 10
			}
			b := a
			b.expr = a.expr[:at[2]] + fmt.Sprintf("%g", to) + a.expr[at[3]:]
			all[b.expr] = b
		}
	}
	var minutes int
	if _, err := fmt.Sscanf(a.wait, "%dm", &minutes); err == nil {
		for _, seconds := range []int{minutes * 600, minutes * 6} {
			b := a
			b.wait = fmt.Sprintf("%ds", seconds)
			all["for: "+b.wait] = b
		}
	}
	return all
}

// A threshold that no test is close to could be wrong by any factor.
func TestMovedThresholdsFail(t *testing.T) {
	for _, test := range unitTests() {
		a := alerts[test.rule]
		t.Run(a.name+"_"+a.severity+"_"+a.variant, func(t *testing.T) {
			t.Parallel()
			test.rule = 0
			variants := moved(a)
			if len(variants) == 0 {
				t.Fatalf("%s: no threshold found", a.expr)
			}
			tests := testsYAML([]alert{a}, []unitTest{test})
			alone := func() {
				if out, err := promtool(t, rulesYAML(records, []alert{a}), tests, "test", "rules",
					"rules_test.yml"); err != nil {
					t.Fatalf("the rule alone fails: %v\n%s", err, out)
				}
			}
			alone()
			if test.step != "" { // it lasts for days: the variants are evaluated only as often as there are samples
				tests = strings.Replace(tests, everyMinute, "evaluation_interval: "+test.step, 1)
				alone()
			}
			for what, b := range variants {
				if out, err := promtool(t, rulesYAML(records, []alert{b}), tests, "test", "rules",
					"rules_test.yml"); err == nil {
					t.Errorf("no test notices:\n%s\n%s", what, out)
				}
			}
		})
	}
}

// The expressions of the dashboard are checked as rules.
func TestDashboardExpressions(t *testing.T) {
	t.Parallel()
	var rules []record
	for i, expr := range dashboardExpressions(t) {
		expr = strings.NewReplacer("$__rate_interval", "5m", "$consumer", ".*").Replace(expr)
		rules = append(rules, record{fmt.Sprintf("txonce:panel:%d", i), expr})
	}
	if len(rules) < 20 {
		t.Errorf("%d expressions: the test sees nothing", len(rules))
	}
	if out, err := promtool(t, rulesYAML(rules, nil), "", "check", "rules", "rules.yml"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
