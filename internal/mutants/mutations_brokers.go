package main

import (
	"path"
	"strings"
)

// elsewhere is a mutation that a test of the package of its file must notice, which needs the servers.
func elsewhere(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: path.Dir(file), run: exactly(test), fails: test}
}

// exactly is the -run of one case.
func exactly(test string) string {
	return "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
}

// brokerMutations are those of what came with further brokers, databases and poolers.
var brokerMutations = []mutation{
	handling("an outage is waited out at start", "start.go", "TestStartWaitsOutAnOutage", edit{
		`!late && c.final(err):`, `!late || c.final(err):`,
	}),
	subscriber("what is in work is not taken again", "queue.go", "TestQueue", edit{
		`case d.working || d.notBefore.After(now):`, `case d.notBefore.After(now):`,
	}),
	subscriber("no batch takes what others could handle", "partition.go", "TestConcurrencySharesWhatWaits", edit{
		`return min(max(share, 1), p.cfg.MaxBatch)`, `return max(share, p.cfg.MaxBatch)`,
	}),
	{
		name: "everybody locks in one order", file: "internal/claims/locks.go",
		edits: []edit{{`	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Number, b.Number) })
`, `	_ = cmp.Compare[int]
`}},
		pkg: pgx, run: "^TestLockExcludes$/^direct$", fails: "TestLockExcludes/direct",
	},

	elsewhere("watermill: a handler that nacks commits nothing", "adapters/watermilltx/middleware.go", "TestFailureLeavesNothing", edit{
		`if isNacked(given) {`, `if false && isNacked(given) {`,
	}),
	elsewhere("watermill: what has no topic is not produced", "adapters/watermilltx/middleware.go", "TestProducingWhatCannotBePublished", edit{
		`if topic == "" {`, `if false {`,
	}),
	elsewhere("watermill: equal UUIDs in two topics are two", "adapters/watermilltx/envelope.go", "TestForwarderTopicIsEmptied", edit{
		`return e.Topic + "/" + e.UUID, nil`, `return e.UUID, nil`,
	}),

	elsewhere("rabbitmq: a nack is no confirm", "adapters/rabbitmq/publisher_line.go", "TestPublisherAnswersEachMessage", edit{
		`case !c.Ack:`, `case false:`,
	}),
	elsewhere("rabbitmq: what no queue takes comes back", "adapters/rabbitmq/publisher_line.go", "TestPublisherAnswersEachMessage", edit{
		`mandatory, immediate = true, false`, `mandatory, immediate = false, false`,
	}),

	elsewhere("mysql: a lease that has ended settles nothing", "adapters/sqlstore/outbox_mysql_settle.go", "TestOutboxLeaseEndsByTheDatabasesClock/MySQL", edit{
		`len(mine) != len(tokens)`, `len(mine) > len(tokens)`,
	}),
	elsewhere("lift: a handler writes in its claim's transaction", "adapters/sqlstore/lift.go", "TestLiftRefusesAnotherTransaction", edit{
		`if l.unwrap(lifted) != tx {`, `if l.unwrap(lifted) != tx && false {`,
	}),
}
