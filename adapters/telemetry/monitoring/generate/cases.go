package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A unit test has three subjects, which the label that the alert is about names: "fires" is a little over the
// threshold, "below" a little under it, and "restarts" is well, but its exporter is started again. All are of the job
// "ill", which the alert names. The job "well" has a subject "fires", too, with the values of "below".
type unitTest struct {
	rule   int               // of alerts
	about  string            // the label
	labels string            // further labels of the alert, as in cause="x"
	series map[string]string // values by series; SUBJECT stands for the label and its value
	step   string            // between samples; empty: a minute
	also   []string          // further subjects that fire
	at     string            // when it must fire
	before string            // when it must not fire yet, if the rule waits
	later  string            // when it must still fire; empty: at is enough
}

// series returns the three subjects of one metric.
func subjects(metric, about, labels, fires, below, restarts string) map[string]string {
	if labels != "" {
		labels = "," + labels
	}
	all := map[string]string{}
	for subject, values := range map[string]string{"fires": fires, "below": below, "restarts": restarts} {
		all[fmt.Sprintf(`%s{%s="%s"%s}`, metric, about, subject, labels)] = values
	}
	return all
}

func join(all ...map[string]string) map[string]string {
	joined := map[string]string{}
	for _, some := range all {
		for k, v := range some {
			joined[k] = v
		}
	}
	return joined
}

func deliveriesOf(labels, fires, below, restarts string) map[string]string {
	return subjects("txonce_deliveries_total", "consumer", `topic="orders",`+labels, fires, below, restarts)
}

func requestsOf(labels, fires, below, restarts string) map[string]string {
	return subjects("txonce_http_requests_total", "guard", labels, fires, below, restarts)
}

const (
	parkedLabels    = `outcome="parked",cause="exhausted"`
	processedLabels = `outcome="processed",cause=""`
	duplicateLabels = `outcome="duplicate",cause=""`
)

// find returns the place of the nth rule of that name.
func find(name string, nth int) int {
	for i, a := range alerts {
		if a.name == name {
			if nth == 0 {
				return i
			}
			nth--
		}
	}
	panic("no rule " + name)
}

// buckets returns the series of a histogram whose values are all between two bounds.
func buckets(metric, about, subject, labels, low, high, values string) map[string]string {
	if labels != "" {
		labels = "," + labels
	}
	all := map[string]string{}
	for _, bound := range []string{low, high, "+Inf"} {
		v := values
		if bound == low {
			v = "0x60"
		}
		all[fmt.Sprintf(`%s{%s="%s"%s,le="%s"}`, metric, about, subject, labels, bound)] = v
	}
	return all
}

func unitTests() []unitTest {
	return []unitTest{
		{
			rule: find("OutboxStuck", 0), about: "topic", at: "7m", before: "4m",
			series: subjects("txonce_outbox_oldest_age_seconds", "topic", "", "61x20", "59x20",
				"59x3 stale stale 0x20"),
		},
		{
			rule: find("OutboxStuck", 1), about: "topic", at: "3m",
			series: subjects("txonce_outbox_oldest_age_seconds", "topic", "", "301x20", "299x20", "299x1 stale 0x20"),
		},
		{
			rule: find("Blind", 0), about: "job", at: "11m", before: "9m", later: "3h",
			series: subjects("txonce_sweep_lag_seconds", "job", "", "60x5 stale _x200", "60x200",
				"60x5 stale _x2 60x200"),
		},
		{
			rule: find("Parked", 0), about: "consumer", at: "20m", also: []string{"born"},
			series: join(
				deliveriesOf(parkedLabels, "0x15 1x20", "7x40", "5x15 stale 0x20"),
				// The first message of another topic is given up.
				map[string]string{
					`txonce_deliveries_total{consumer="born",topic="orders",outcome="parked",cause="exhausted"}`: "0x40",
					`txonce_deliveries_total{consumer="born",topic="new",outcome="parked",cause="exhausted"}`:    "_x15 1x20",
				}),
		},
		{
			rule: find("Parked", 1), about: "consumer", at: "30m",
			series: join(
				deliveriesOf(parkedLabels, "0+1.2x60", "0+0.9x60", "0+0.5x10 stale 0+0.5x60"),
				deliveriesOf(processedLabels, "0+100x60", "0+8x60", "0+8x10 stale 0+8x60"),
				// Many are given up, but they are few among all.
				map[string]string{
					`txonce_deliveries_total{consumer="few",topic="orders",outcome="parked",cause="exhausted"}`: "0+1.2x60",
					`txonce_deliveries_total{consumer="few",topic="orders",outcome="processed",cause=""}`:       "0+130x60",
				}),
		},
		{
			rule: find("Parked", 2), about: "topic", at: "3m",
			series: subjects("txonce_outbox_parked", "topic", "", "1x10", "0x10", "1x1 stale 0x10"),
		},
		{
			rule: find("Paused", 0), about: "consumer", labels: `cause="database"`, at: "3m", before: "1m",
			series: subjects("txonce_paused", "consumer", `cause="database"`, "1x30", "0x30", "1x0 stale 0x30"),
		},
		{
			rule: find("Paused", 1), about: "consumer", labels: `cause="database"`, at: "11m", before: "9m",
			series: subjects("txonce_paused", "consumer", `cause="database"`, "1x30", "0x30", "1x8 stale 0x30"),
		},
		{
			rule: find("Paused", 2), about: "consumer", labels: `cause="budget"`, at: "1m",
			series: subjects("txonce_paused", "consumer", `cause="budget"`, "1x30", "0x30", "1x0 stale 0x30"),
		},
		{
			// 3 % are usual. At the end, the ratio of an hour is above five times that, or not quite, or below a tenth.
			rule: find("DuplicateRatio", 0), about: "consumer", step: "10m", at: "12h",
			series: join(
				deliveriesOf(duplicateLabels, "0+3x60 198+18x20", "0+3x60 194+14x20", "0+3x60 stale 0+3x20"),
				deliveriesOf(processedLabels, "0+97x60 5902+82x20", "0+97x60 5906+86x20", "0+97x60 stale 0+97x20"),
				map[string]string{ // .09 where almost nothing is usual
					`txonce_deliveries_total{consumer="few",topic="orders",outcome="duplicate",cause=""}`: "0x60 9+9x20",
					`txonce_deliveries_total{consumer="few",topic="orders",outcome="processed",cause=""}`: "0+100x60 6091+91x20",
				}),
		},
		{
			// .14 % are usual, or only .09 %, in five hours. Then there is none for a day.
			rule: find("DuplicateRatio", 1), about: "consumer", step: "10m", at: "30h",
			series: join(
				deliveriesOf(duplicateLabels, "0+14x30 420x160", "0+9x30 270x160", "0+20x30 stale 0+20x160"),
				deliveriesOf(processedLabels, "0+9986x190", "0+9991x190", "0+9980x30 stale 0+9980x160"),
				map[string]string{ // one duplicate within the day
					`txonce_deliveries_total{consumer="some",topic="orders",outcome="duplicate",cause=""}`: "0+20x70 1400x120",
					`txonce_deliveries_total{consumer="some",topic="orders",outcome="processed",cause=""}`: "0+9980x190",
				}),
		},
		{
			rule: find("InFlightWait", 0), about: "consumer", at: "17m", before: "9m",
			series: join(
				buckets("txonce_claim_duration_seconds_bucket", "consumer", "fires", `verdict="first"`, "2.5", "5",
					"0+10x60"),
				buckets("txonce_claim_duration_seconds_bucket", "consumer", "below", `verdict="first"`, "1", "2.5",
					"0+10x60"),
				buckets("txonce_claim_duration_seconds_bucket", "consumer", "restarts", `verdict="first"`, "1", "2.5",
					"0+10x10 stale 0+10x60")),
		},
		{
			rule: find("InFlightWait", 1), about: "consumer", at: "5m",
			series: subjects("txonce_keys_stuck", "consumer", "", "1x30", "0x30", "1x2 stale 0x30"),
		},
		{
			rule: find("CommitUnknown", 0), about: "consumer", at: "10m",
			series: subjects("txonce_attempts_total", "consumer", `result="commit_unknown",retry="false"`, "0x5 1x20",
				"3x40", "5x5 stale 0x20"),
		},
		{
			rule: find("CommitUnknown", 1), about: "consumer", at: "10m",
			series: subjects("txonce_attempts_total", "consumer", `result="commit_unknown",retry="false"`, "0+5.2x20",
				"0+4.8x20", "0+4.8x5 stale 0+4.8x20"),
		},
		{
			rule: find("WindowMargin", 0), about: "consumer", at: "3m",
			series: subjects("txonce_window_margin_seconds", "consumer", "", "86300x10", "86500x10",
				"86300x1 stale 86500x10"),
		},
		{
			rule: find("WindowMargin", 1), about: "consumer", at: "3m",
			series: subjects("txonce_window_margin_seconds", "consumer", "", "-1x10", "1x10", "-1x1 stale 1x10"),
		},
		{
			rule: find("WindowMargin", 2), about: "consumer", at: "20m", also: []string{"born"},
			series: join(
				deliveriesOf(`outcome="parked",cause="unprovable"`, "0x15 1x20", "7x40", "5x15 stale 0x20"),
				map[string]string{`txonce_deliveries_total{consumer="born",topic="new",outcome="parked",cause="unprovable"}`: "_x15 1x20"}),
		},
		{
			rule: find("SweepLag", 0), about: "job", at: "3m",
			series: subjects("txonce_sweep_lag_seconds", "job", "", "86500x10", "86300x10", "86500x1 stale 0x10"),
		},
		{
			rule: find("LeaseChurn", 0), about: "relay", at: "30m",
			series: subjects("txonce_relay_leases_total", "relay", `kind="lost"`, "0+0.21x60", "0+0.19x60",
				"0+0.19x20 stale 0+0.19x60"),
		},
		{
			rule: find("LeaseChurn", 1), about: "source", at: "30m",
			series: subjects("txonce_source_events_total", "source", `event="lost",messaging_system="aws_sqs"`,
				"0+0.21x60", "0+0.19x60", "0+0.19x20 stale 0+0.19x60"),
		},
		{
			rule: find("SourceGap", 0), about: "source", at: "20m", also: []string{"born"},
			series: join(
				subjects("txonce_source_events_total", "source", `event="gap",messaging_system="kafka"`, "0x15 1x20",
					"3x40", "5x15 stale 0x20"),
				map[string]string{`txonce_source_events_total{source="born",event="gap",messaging_system="kafka"}`: "_x15 1x20"}),
		},
		{
			rule: find("DatabaseWentBack", 0), about: "source", at: "20m", also: []string{"born"},
			series: join(
				subjects("txonce_source_events_total", "source", `event="went_back",messaging_system="kafka"`, "0x15 1x20",
					"3x40", "5x15 stale 0x20"),
				map[string]string{`txonce_source_events_total{source="born",event="went_back",messaging_system="kafka"}`: "_x15 1x20"}),
		},
		{
			rule: find("DatabaseWentBack", 1), about: "consumer", at: "20m", also: []string{"born"},
			series: join(
				subjects("txonce_database_losses_total", "consumer", "", "0x15 1x20", "3x40", "5x15 stale 0x20"),
				map[string]string{`txonce_database_losses_total{consumer="born"}`: "_x15 1x20"}),
		},
		{
			rule: find("PoolSaturated", 0), about: "db_client_connection_pool_name", labels: `instance="i"`, at: "6m",
			before: "4m",
			series: join(
				subjects("db_client_connection_count", "db_client_connection_pool_name",
					`instance="i",db_client_connection_state="used"`, "91x20", "89x20", "91x3 stale 89x20"),
				subjects("db_client_connection_max", "db_client_connection_pool_name", `instance="i"`, "100x20",
					"100x20", "100x20")),
		},
		{
			rule: find("RetryRate", 0), about: "consumer", at: "20m",
			series: join(
				deliveriesOf(`outcome="retried",cause="handler"`, "0+6.6x40", "0+5.4x40", "0+5x10 stale 0+5x40"),
				deliveriesOf(processedLabels, "0+36x40", "0+5x40", "0+5x10 stale 0+5x40"),
				map[string]string{ // many, but few among all
					`txonce_deliveries_total{consumer="few",topic="orders",outcome="retried",cause="handler"}`: "0+20x40",
					`txonce_deliveries_total{consumer="few",topic="orders",outcome="processed",cause=""}`:      "0+123x40",
				}),
		},
		{
			rule: find("RetryStorm", 0), about: "guard", at: "20m",
			series: join(
				requestsOf(`decision="replayed",reason=""`, "0+66x40", "0+54x40", "0+54x10 stale 0+54x40"),
				requestsOf(`decision="new",reason=""`, "0+134x40", "0+20x40", "0+20x10 stale 0+20x40"),
				map[string]string{ // many, but few among all
					`txonce_http_requests_total{guard="few",decision="conflict",reason="InFlight"}`: "0+120x40",
					`txonce_http_requests_total{guard="few",decision="new",reason=""}`:              "0+300x40",
				}),
		},
		{
			rule: find("RetryStorm", 1), about: "source", at: "20m",
			series: join(
				subjects("txonce_webhook_events_total", "source", `outcome="deferred"`, "0+66x40", "0+54x40",
					"0+54x10 stale 0+54x40"),
				subjects("txonce_webhook_events_total", "source", `outcome="new"`, "0+134x40", "0+20x40",
					"0+20x10 stale 0+20x40"),
				map[string]string{
					`txonce_webhook_events_total{source="few",outcome="duplicate"}`: "0+120x40",
					`txonce_webhook_events_total{source="few",outcome="new"}`:       "0+300x40",
				}),
		},
		{
			rule: find("KeyCollision", 0), about: "guard", at: "30m",
			series: requestsOf(`decision="mismatched",reason="Mismatch"`, "0+0.8x60", "0+0.6x60",
				"0+0.6x20 stale 0+0.6x60"),
		},
		{
			rule: find("TimeoutMidCommit", 0), about: "guard", at: "10m",
			series: subjects("txonce_http_commit_unknown_total", "guard", "", "0x5 1x20", "3x40", "5x5 stale 0x20"),
		},
		{
			rule: find("TimeoutMidCommit", 1), about: "guard", at: "10m",
			series: subjects("txonce_http_commit_unknown_total", "guard", "", "0+5.2x20", "0+4.8x20",
				"0+4.8x5 stale 0+4.8x20"),
		},
		{
			rule: find("WebhookRefused", 0), about: "source", at: "30m",
			series: join(
				subjects("txonce_webhook_refused_total", "source", `refusal="bad-signature"`, "0+0.8x60", "0+0.6x60",
					"0+0.6x20 stale 0+0.6x60"),
				subjects("txonce_webhook_deliveries_total", "source", `answer="4xx"`, "0+0.8x60", "0+0.6x60",
					"0+0.6x20 stale 0+0.6x60"),
				subjects("txonce_webhook_deliveries_total", "source", `answer="2xx"`, "0+0.5x60", "0+0.1x60",
					"0+0.1x20 stale 0+0.1x60"),
				map[string]string{ // many, but fewer than are accepted
					`txonce_webhook_refused_total{source="few",refusal="unsigned"}`: "0+2x60",
					`txonce_webhook_deliveries_total{source="few",answer="4xx"}`:    "0+2x60",
					`txonce_webhook_deliveries_total{source="few",answer="2xx"}`:    "0+2.4x60",
				}),
		},
		{
			rule: find("Slow", 0), about: "messaging_consumer_group_name", at: "12m", before: "4m",
			series: join(
				buckets("messaging_process_duration_seconds_bucket", "messaging_consumer_group_name", "fires",
					`messaging_operation_name="process"`, "0.5", "0.75", "0+10x60"),
				buckets("messaging_process_duration_seconds_bucket", "messaging_consumer_group_name", "below",
					`messaging_operation_name="process"`, "0.25", "0.5", "0+10x60"),
				buckets("messaging_process_duration_seconds_bucket", "messaging_consumer_group_name", "restarts",
					`messaging_operation_name="process"`, "0.25", "0.5", "0+10x5 stale 0+10x60")),
		},
		{
			rule: find("Deadlocks", 0), about: "consumer", at: "10m",
			series: subjects("txonce_attempts_total", "consumer", `result="deadlock",retry="false"`, "0+6.2x20",
				"0+5.8x20", "0+5.8x5 stale 0+5.8x20"),
		},
		{
			rule: find("AuditFinding", 0), about: "consumer", at: "3m", also: []string{"doubled", "orphaned"},
			series: join(
				subjects("txonce_audit_lost", "consumer", "", "1x10", "0x10", "1x1 stale 0x10"),
				subjects("txonce_audit_doubled", "consumer", "", "0x10", "0x10", "1x1 stale 0x10"),
				subjects("txonce_audit_orphaned", "consumer", "", "0x10", "0x10", "1x1 stale 0x10"),
				map[string]string{
					`txonce_audit_lost{consumer="doubled"}`: "0x10", `txonce_audit_doubled{consumer="doubled"}`: "1x10",
					`txonce_audit_doubled{consumer="orphaned"}`:  "0x10",
					`txonce_audit_orphaned{consumer="orphaned"}`: "1x10",
				}),
		},
		{
			rule: find("AuditFinding", 1), about: "consumer", at: "3m",
			series: subjects("txonce_audit_repeated", "consumer", "", "1x10", "0x10", "1x1 stale 0x10"),
		},
		{
			rule: find("AuditStale", 0), about: "consumer", step: "1h", at: "60h", also: []string{"gone"},
			series: join(
				subjects("txonce_audit_age_seconds", "consumer", "", "172900x100", "172700x100",
					"172900x1 stale 60x100"),
				// its program was restarted, and no audit ran since
				map[string]string{`txonce_audit_age_seconds{consumer="gone"}`: "60x3 stale"}),
		},
	}
}

// ofJobs returns the series with the label job. A test about jobs has it already.
func (test unitTest) ofJobs() map[string]string {
	if test.about == "job" {
		return test.series
	}
	all := map[string]string{}
	for series, values := range test.series {
		all[strings.Replace(series, "{", `{job="ill",`, 1)] = values
		if name := strings.Replace(series, "{", `{job="well",`, 1); strings.Contains(series, `="below"`) {
			all[strings.Replace(name, `="below"`, `="fires"`, 1)] = values
		}
	}
	return all
}

const everyMinute = "evaluation_interval: 1m"

// testsYAML returns the file for promtool test rules.
func testsYAML(alerts []alert, tests []unitTest) string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("rule_files: [rules.yml]\n" + everyMinute + "\ntests:\n")
	for _, test := range tests {
		a := alerts[test.rule]
		step := test.step
		if step == "" {
			step = "1m"
		}
		fmt.Fprintf(&b, "- name: %s %s\n  interval: %s\n  input_series:\n", a.name, a.severity, step)
		series := test.ofJobs()
		for _, name := range slices.Sorted(maps.Keys(series)) {
			fmt.Fprintf(&b, "  - {series: '%s', values: '%s'}\n", name, series[name])
		}
		b.WriteString("  promql_expr_test:\n")
		expect := func(at, samples string) {
			fmt.Fprintf(&b, "  - {eval_time: %s, expr: '%s', exp_samples: [%s]}\n", at, a.firing(), samples)
		}
		if test.before != "" {
			expect(test.before, "")
		}
		labels := test.labels
		if labels != "" {
			labels = "," + labels
		}
		if a.variant != "" {
			labels += `,variant="` + a.variant + `"`
		}
		if test.about != "job" {
			labels += `,job="ill"`
		}
		var firing []string
		for _, subject := range append([]string{"fires"}, test.also...) {
			firing = append(firing, fmt.Sprintf(`{labels: 'ALERTS{alertname="%s",alertstate="firing",severity="%s",%s="%s"%s}', value: 1}`,
				a.name, a.severity, test.about, subject, labels))
		}
		expect(test.at, strings.Join(firing, ", "))
		if test.later != "" {
			expect(test.later, strings.Join(firing, ", "))
		}
	}
	return b.String()
}

func (a alert) firing() string {
	return fmt.Sprintf(`ALERTS{alertname="%s",alertstate="firing",severity="%s",variant="%s"}`, a.name, a.severity,
		a.variant)
}
