package main

import (
	"fmt"
	"strings"
)

// Severities. A page wakes somebody; a ticket waits for the morning.
const (
	ticket = "ticket"
	page   = "page"
)

// alert is one rule of Prometheus.
type alert struct {
	name     string // of its page in docs/runbook; several rules may share it
	severity string
	variant  string // tells rules of one name and severity apart, as a label; empty: none
	expr     string
	wait     string // how long expr holds before the alert fires; empty: at once
	summary  string // what a reader of the alert needs to know, without the numbers
}

// Sums keep the label job, which Prometheus gives to each service: services may use one name for their consumers,
// relays or topics, and Alertmanager routes an alert by its job.

// record is a recording rule: an expression that other rules look back on.
type record struct{ name, expr string }

// duplicateRatio is recorded because its median over a week would otherwise be computed from all samples at each
// evaluation.
const duplicateRatio = "txonce:duplicate_ratio:1h"

var records = []record{{
	duplicateRatio, `sum by (job, consumer) (rate(txonce_deliveries_total{outcome="duplicate"}[1h]))
  / (sum by (job, consumer) (rate(txonce_deliveries_total[1h])) > 0)`,
}}

// grown is an expression for counters that grew by more than most within window. Their sum is by job and label.
// increase() of a series that a program has only begun to export is 0, so the second part compares the value of a new
// series.
func grown(label, series, window string, most int) string {
	return fmt.Sprintf(`(sum by (job, %[1]s) (increase(%[2]s[%[3]s])) > %[4]d
  or sum by (job, %[1]s) (%[2]s unless %[2]s offset %[3]s) > %[4]d)`, label, series, window, most)
}

const givenUp = `txonce_deliveries_total{outcome=~"parked|rejected"}`

const (
	repeatedRequests = `txonce_http_requests_total{decision=~"replayed|conflict"}`
	repeatedEvents   = `txonce_webhook_events_total{outcome=~"duplicate|deferred"}`
	forged           = `txonce_webhook_refused_total{refusal=~"unsigned|bad-signature|bad-time|wrong-app"}`
)

var alerts = []alert{
	{
		"OutboxStuck", ticket, "", `max by (job, topic) (txonce_outbox_oldest_age_seconds) > 60`, "5m",
		"The oldest message of the outbox has waited for more than a minute. Relays usually publish within milliseconds.",
	},
	{
		"OutboxStuck", page, "", `max by (job, topic) (txonce_outbox_oldest_age_seconds) > 300`, "",
		"The oldest message of the outbox has waited for more than five minutes. No relay publishes it.",
	},
	{
		"Blind", page, "", `absent(txonce_sweep_lag_seconds)
  or (max by (job) (max_over_time(txonce_sweep_lag_seconds[1d])) unless max by (job) (txonce_sweep_lag_seconds))`, "5m",
		"No process exports the gauges of the database, so other alerts cannot fire.",
	},
	{
		"Parked", ticket, "", grown("consumer", givenUp, "15m", 0), "",
		"Messages were given up. They wait in dead_letters for a person.",
	},
	{
		"Parked", page, "", `sum by (job, consumer) (increase(txonce_deliveries_total{outcome=~"parked|rejected"}[10m])) > 10
and sum by (job, consumer) (increase(txonce_deliveries_total{outcome=~"parked|rejected"}[10m]))
  / sum by (job, consumer) (increase(txonce_deliveries_total[10m])) > 0.01`, "",
		"More than one message in a hundred is given up: probably a faulty deployment.",
	},
	{
		"Parked", ticket, "outbox", `max by (job, topic) (txonce_outbox_parked) > 0`, "",
		"Messages of the outbox were given up, or wait behind such a message. They are not published until a person acts.",
	},
	{
		"Paused", ticket, "", `max by (job, consumer, relay, source, cause) (txonce_paused) == 1`, "2m",
		"A consumer, a relay or a subscriber has made no progress for two minutes. It resumes by itself when the cause ends.",
	},
	{
		"Paused", page, "", `max by (job, consumer, relay, source, cause) (txonce_paused) == 1`, "10m",
		"A consumer, a relay or a subscriber has made no progress for ten minutes.",
	},
	{
		"Paused", page, "budget", `max by (job, consumer, cause) (txonce_paused{cause="budget"}) == 1`, "",
		"A consumer gave up so many messages that it stopped, because the fault is probably its own.",
	},
	{
		"DuplicateRatio", ticket, "storm", duplicateRatio + ` > 0.1
and ` + duplicateRatio + ` > 5 * quantile_over_time(0.5, ` + duplicateRatio + `[7d])`, "",
		"There are many more duplicates than usual: something delivers messages again and again.",
	},
	{
		"DuplicateRatio", ticket, "none", `max_over_time(` + duplicateRatio + `[1d]) == 0
and avg_over_time(` + duplicateRatio + `[7d] offset 1d) > 0.001`, "",
		"There was no duplicate for a day where some are usual: keys may have changed, and repeats then run twice.",
	},
	{
		"InFlightWait", ticket, "", `histogram_quantile(0.99, sum by (job, consumer, le) (rate(txonce_claim_duration_seconds_bucket[5m]))) > 2.5`, "10m",
		"Claims wait for other transactions for more than half of the default ClaimTimeout.",
	},
	{
		"InFlightWait", page, "", `max by (job, consumer) (txonce_keys_stuck) > 0`, "",
		"Another transaction held a key at five deliveries in ten minutes: probably a frozen process.",
	},
	{
		"CommitUnknown", ticket, "", `sum by (job, consumer) (increase(txonce_attempts_total{result="commit_unknown"}[15m])) > 0`, "",
		"The answer to a COMMIT was lost. The next delivery settles what happened.",
	},
	{
		"CommitUnknown", page, "", `sum by (job, consumer) (rate(txonce_attempts_total{result="commit_unknown"}[5m])) * 60 > 5`, "",
		"The answers to many COMMITs are lost: a proxy or the database loses connections.",
	},
	{
		"WindowMargin", ticket, "", `min by (job, consumer) (txonce_window_margin_seconds) < 86400`, "",
		"Keys are remembered for less than a day longer than the source may deliver a message again.",
	},
	{
		"WindowMargin", page, "", `min by (job, consumer) (txonce_window_margin_seconds) < 0`, "",
		"The source may deliver a message again after its key was forgotten. Such a repeat is parked, or runs twice.",
	},
	{
		"WindowMargin", ticket, "unprovable", grown("consumer", `txonce_deliveries_total{cause="unprovable"}`,
			"15m", 0), "",
		"Messages arrived that are older than the keys that are remembered.",
	},
	{
		"SweepLag", ticket, "", `min by (job) (txonce_sweep_lag_seconds) > 86400`, "",
		"No sweeper has deleted expired keys for a day. That costs disk space, not safety.",
	},
	{
		"LeaseChurn", ticket, "", `sum by (job, relay) (increase(txonce_relay_leases_total{kind=~"lost|stale"}[15m])) > 3`, "",
		"A relay loses its leases again and again. After each loss a batch may be published twice.",
	},
	{
		"LeaseChurn", ticket, "source", `sum by (job, source) (increase(txonce_source_events_total{event="lost"}[15m])) > 3`, "",
		"A subscriber loses messages that it works on: the broker delivers them again, also to others.",
	},
	{
		"SourceGap", page, "", grown("source", `txonce_source_events_total{event="gap"}`, "15m", 0), "",
		"The broker deleted messages before they were read. They are lost unless their producer sends them again.",
	},
	{
		"DatabaseWentBack", page, "", grown("source", `txonce_source_events_total{event="went_back"}`, "15m", 0), "",
		"The database lost commits. The messages are read again, but what others have committed there is gone.",
	},
	{
		"DatabaseWentBack", page, "acknowledged", grown("consumer", `txonce_database_losses_total`, "15m", 0), "",
		"The database lost commits, and the messages of that time are acknowledged: nobody sends them again by itself.",
	},
	{
		"PoolSaturated", ticket, "", `sum by (job, instance, db_client_connection_pool_name) (db_client_connection_count{db_client_connection_state="used"})
  / sum by (job, instance, db_client_connection_pool_name) (db_client_connection_max) > 0.9`, "5m",
		"Nearly all connections of a pool are in use. More workers only wait longer.",
	},
	{
		"RetryRate", ticket, "", `sum by (job, consumer) (rate(txonce_deliveries_total{outcome="retried"}[5m])) > 0.1
and sum by (job, consumer) (rate(txonce_deliveries_total{outcome="retried"}[5m]))
  / sum by (job, consumer) (rate(txonce_deliveries_total[5m])) > 0.15`, "",
		"Many attempts fail and are repeated.",
	},
	{
		"RetryStorm", ticket, "", `sum by (job, guard) (rate(` + repeatedRequests + `[5m])) > 1
and sum by (job, guard) (rate(` + repeatedRequests + `[5m]))
  / sum by (job, guard) (rate(txonce_http_requests_total[5m])) > 0.3`, "",
		"Nearly every third HTTP request repeats another one: clients do not get their answers, or retry without waiting.",
	},
	{
		"RetryStorm", ticket, "webhook", `sum by (job, source) (rate(` + repeatedEvents + `[5m])) > 1
and sum by (job, source) (rate(` + repeatedEvents + `[5m]))
  / sum by (job, source) (rate(txonce_webhook_events_total[5m])) > 0.3`, "",
		"Nearly every third event of a webhook is delivered again: its sender does not get a 2xx in time.",
	},
	{
		"KeyCollision", ticket, "", `sum by (job, guard) (increase(txonce_http_requests_total{reason=~"Mismatch|Forgotten|NotRetained"}[15m])) > 10`, "",
		"Clients use an Idempotency-Key again for another request, or after it was forgotten.",
	},
	{
		"TimeoutMidCommit", ticket, "", `sum by (job, guard) (increase(txonce_http_commit_unknown_total[15m])) > 0`, "",
		"The answer to the COMMIT of an HTTP request was lost. The client's repeat settles what happened.",
	},
	{
		"TimeoutMidCommit", page, "", `sum by (job, guard) (rate(txonce_http_commit_unknown_total[5m])) * 60 > 5`, "",
		"The answers to the COMMITs of many HTTP requests are lost: a proxy or the database loses connections.",
	},
	{
		"WebhookRefused", ticket, "", `sum by (job, source) (increase(` + forged + `[15m])) > 10
and sum by (job, source) (increase(` + forged + `[15m]))
  / sum by (job, source) (increase(txonce_webhook_deliveries_total[15m])) > 0.5`, "",
		"More than half of the deliveries of a webhook are refused: probably a secret was replaced, or the clock is wrong.",
	},
	{
		"Slow", ticket, "", `histogram_quantile(0.99, sum by (job, messaging_consumer_group_name, le)
  (rate(messaging_process_duration_seconds_bucket{messaging_operation_name="process",messaging_consumer_group_name!=""}[5m]))) > 0.5`, "5m",
		"One pass in a hundred takes more than half a second.",
	},
	{
		"Deadlocks", ticket, "", `sum by (job, consumer) (rate(txonce_attempts_total{result="deadlock"}[5m])) > 0.1`, "",
		"The database rolls back transactions because they wait for each other.",
	},
	{
		"AuditFinding", page, "", `max by (job, consumer) (txonce_audit_lost) > 0
or max by (job, consumer) (txonce_audit_doubled) > 0
or max by (job, consumer) (txonce_audit_orphaned) > 0`, "",
		"An audit found a message that is lost, an effect that was made twice, or an effect without a claim.",
	},
	{
		"AuditFinding", ticket, "repeated", `max by (job, consumer) (txonce_audit_repeated) > 0`, "",
		"An audit found messages of the outbox more than once on their topic. Readers recognize a repeat by its ID.",
	},
	{
		"AuditStale", ticket, "", `min by (job, consumer) (txonce_audit_age_seconds) > 172800
or (max by (job, consumer) (max_over_time(txonce_audit_age_seconds[7d])) unless max by (job, consumer) (max_over_time(txonce_audit_age_seconds[2d])))`, "",
		"No audit has ended for two days.",
	},
}

const generated = "# Code generated by go generate in adapters/telemetry/monitoring. DO NOT EDIT.\n"

// rulesYAML returns the file for rule_files of Prometheus.
func rulesYAML(records []record, alerts []alert) string {
	var b strings.Builder
	b.WriteString(generated)
	b.WriteString("groups:\n- name: txonce\n  rules:\n")
	for _, r := range records {
		fmt.Fprintf(&b, "  - record: %s\n    expr: |-\n%s", r.name, indent(r.expr))
	}
	for _, a := range alerts {
		fmt.Fprintf(&b, "  - alert: %s\n    expr: |-\n%s", a.name, indent(a.expr))
		if a.wait != "" {
			fmt.Fprintf(&b, "    for: %s\n", a.wait)
		}
		fmt.Fprintf(&b, "    labels: {severity: %s", a.severity)
		if a.variant != "" {
			fmt.Fprintf(&b, ", variant: %s", a.variant)
		}
		fmt.Fprintf(&b, "}\n    annotations:\n      summary: %q\n      runbook_url: %s\n", a.summary, a.runbook())
	}
	return b.String()
}

func (a alert) runbook() string {
	return "https://github.com/txonce/txonce/blob/main/docs/runbook/" + a.name + ".md"
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(text, "\n", "\n      ") + "\n"
}
