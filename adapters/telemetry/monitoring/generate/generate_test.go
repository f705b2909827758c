package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFilesAreCurrent(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is outdated; run go generate ./adapters/telemetry/monitoring (-want +got):\n%s", name, diff)
		}
	}
}

func dashboardExpressions(t *testing.T) (all []string) {
	t.Helper()
	var d grafana
	if err := json.Unmarshal([]byte(dashboardJSON()), &d); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\b(?:txonce|messaging|db_client)_[a-z_]+`)
	labelName  = regexp.MustCompile(`([a-z_]+)="`)
)

// A rule about a metric that nobody exports never fires.
func TestNamesOccurInAScrape(t *testing.T) {
	exported := map[string]bool{}
	for line := range strings.Lines(scrape(t)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, labels, _ := strings.Cut(strings.Fields(line)[0], "{")
		exported[name] = true
		for _, label := range labelName.FindAllStringSubmatch(labels, -1) {
			exported[label[1]] = true
		}
	}
	expressions := dashboardExpressions(t)
	for _, a := range alerts {
		expressions = append(expressions, a.expr)
	}
	for _, r := range records {
		expressions = append(expressions, r.expr)
	}
	found := 0
	for _, expr := range expressions {
		for _, name := range metricName.FindAllString(strings.ReplaceAll(expr, duplicateRatio, ""), -1) {
			found++
			if !exported[name] {
				t.Errorf("%s is neither a series nor a label of a scrape:\n%s", name, expr)
			}
		}
	}
	if found < 50 {
		t.Errorf("%d names: the test sees nothing", found)
	}
}

// Each alert names a page, and each page is about an alert.
func TestRunbook(t *testing.T) {
	const folder = "../../../../docs/runbook"
	names := map[string]bool{}
	for _, a := range alerts {
		names[a.name+".md"] = true
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !names[e.Name()] && e.Name() != "README.md" {
			t.Errorf("docs/runbook/%s is about no alert", e.Name())
		}
		delete(names, e.Name())
	}
	for name := range names {
		t.Errorf("docs/runbook/%s is missing", name)
	}
	for _, a := range alerts {
		text, err := os.ReadFile(filepath.Join(folder, a.name+".md"))
		if err != nil {
			continue // reported above
		}
		at := 0
		for _, heading := range []string{
			"# " + a.name, "## What it means", "## Look", "## Fix", "## Verify",
			"## Never",
		} {
			next := strings.Index(string(text)[at:], heading+"\n")
			if next < 0 {
				t.Errorf("docs/runbook/%s.md has no heading %q in its place", a.name, heading)
				break
			}
			at += next
		}
	}
}
