// Package monitoring has rules for Prometheus and a dashboard for Grafana that use the metrics of package telemetry.
//
// # Use
//
// Write [Rules] to a file of rule_files of Prometheus, and import [Dashboard] in Grafana. Scrape the program through
// OpenTelemetry's exporter for Prometheus, made with prometheus.WithoutScopeInfo(). Each alert has a page in
// docs/runbook, which its annotation runbook_url names, and the label severity with the value ticket or page.
//
// Thresholds suit the defaults of txonce. After a change of Rules, change [RulesTest] as well and run promtool test
// rules on it.
package monitoring

import (
	_ "embed"
	"slices"
)

//go:generate go run ./generate

//go:embed rules.yml
var rules []byte

//go:embed rules_test.yml
var rulesTest []byte

//go:embed dashboard.json
var dashboard []byte

// Rules returns a file with alerting and recording rules for Prometheus 2.42 or later.
func Rules() []byte { return slices.Clone(rules) }

// RulesTest returns the unit tests of Rules, for promtool test rules. They expect the rules in the same folder as
// rules.yml.
func RulesTest() []byte { return slices.Clone(rulesTest) }

// Dashboard returns a dashboard for Grafana, which asks for the data source when it is imported.
func Dashboard() []byte { return slices.Clone(dashboard) }
