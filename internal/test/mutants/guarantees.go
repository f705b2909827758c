package main

import (
	"fmt"
	"strings"
)

// group is a section of docs/guarantees.md.
type group struct {
	title, about string
	rows         []row
}

func allRows() (rows []row) {
	for _, g := range groups {
		rows = append(rows, g.rows...)
	}
	return rows
}

// groups are in the order of the page. The rows cover one store (pgxstore on PostgreSQL 15), one broker (Kafka), the
// consumer between them, and what other stores and brokers do by themselves.
var groups = []group{
	{"Claims and effects", "The effects of a message are committed once, together with its claim.", claimRows},
	{
		"Handlers that fail or misbehave", "" +
			"A message is committed, or parked in the table `dead_letters` with its cause, or delivered again.",
		handlerRows,
	},
	{"Databases", "What each database needs for the promises above, and what is refused.", databaseRows},
	{"Brokers", "A message is acknowledged when its outcome is committed, and not before.", brokerRows},
	{"Outbox", "" +
		"A message that a handler enqueues is published at least once when its transaction commits, always with one ID.", outboxRows},
	{"Calls to other systems", "A call takes effect once, or is parked in doubt.", callRows},
	{"Webhooks", "Only a signed event is accepted. It is handled once, however often it is delivered.", webhookRows},
	{"HTTP requests with an Idempotency-Key", "" +
		"A request takes effect once. Its repeats get the stored response.", httpRows},
	{
		"Found by chance", "" +
			"The simulation (`make sim`) must notice each of these from a seed, within a few hundred or thousand cases: " +
			"`go run ./internal/test/mutants -sim`.", simulationRows,
	},
	{"Operations", "Old keys, dead letters, audits, the command line, the dashboard, metrics and logs.", operationRows},
}

// guarantees returns docs/guarantees.md.
func guarantees() string {
	var b strings.Builder
	b.WriteString(`# Guarantees and the tests that prove them

Each row is a promise and a test that fails when the promise is broken. ` + "`make mutants`" + ` proves that: it breaks one
promise after another in the code, in a copy that only the compiler sees, and expects the named test to fail. There are many
more tests. The suites [deduptest](../dedup/deduptest), [outboxtest](../outbox/outboxtest) and
[consumertest](../consumer/consumertest) hold each store and each broker to the same promises. The rows name the test on one
of them: pgxstore on PostgreSQL 15, and Kafka.

This page is generated: ` + "`go run ./internal/test/mutants -list > docs/guarantees.md`" + `.
`)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| promise | test |\n|---|---|\n", g.title, g.about)
		for _, r := range g.rows {
			test, folder := r.test()
			fmt.Fprintf(&b, "| %s | `%s` in [%s](../%s) |\n", r.promise, test,
				strings.TrimPrefix(folder, "adapters/"), folder)
		}
	}
	return b.String()
}
