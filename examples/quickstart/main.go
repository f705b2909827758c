// Command quickstart is the demo of txonce: it kills workers in the middle of payments and then audits the ledger.
//
//	go run ./examples/quickstart
//
// It needs nothing but Go. Orders lie on a Kafka topic, each 1 to 5 times, shuffled, some with copies on several
// partitions; a few are poison, and a few reuse an order's key for other content. Three worker processes of one consumer
// group charge them to a ledger that has no unique key, so that whatever is charged twice shows. Workers are killed with
// SIGKILL inside an open transaction, after the ledger's row is written and before it is committed, and started again.
// Each charge enqueues an event in the same transaction, and every worker relays what is in the outbox, so relays die with
// their workers and others take over. When the group has committed every offset and the outbox is empty, an audit compares
// the ledger, the dead letters and the topic of events with what was produced.
//
// By default the database is a SQLite file and Kafka runs in this process (kfake); -store and -broker take real ones:
//
//	make services-up
//	go run ./examples/quickstart -store pgx -broker kafka -messages 200000 -kill-every 2s -json
//	go run ./examples/quickstart -store mysql -broker sqs
//	go run ./examples/quickstart -store sql-postgres -broker rabbitmq
//
// With -broker sqs or rabbitmq the orders lie in one queue from which any worker gets any of them, in any order. With -broker sqs a worker
// is also frozen for longer than the visibility timeout (-freeze): the queue gives what it held to the others, and then it goes on.
//
// worker.go is the file to copy; worker_sql.go is what is different on database/sql, worker_kafka.go, worker_sqs.go and
// worker_rabbitmq.go are what is different on the brokers. ledger.go is the handler. The rest makes the trouble and counts: plan.go decides by
// -seed what is delivered and who dies when, broker.go and database.go make a place for the run and remove it,
// supervise.go and process.go run the workers, fault.go stops one where it is to be killed, audit.go judges.
//
// -broken mark-first and -broken effect-first replace the worker by the code that people write by hand, with the claim
// in a transaction of its own, -broken dual-write by one that publishes when it has committed (broken.go). The audit then
// finds lost or doubled orders, or missing events: an audit that cannot fail proves nothing.
//
// # Figures
//
// With -json the last line is one JSON object. deliveries is what was produced, the copies of all messages together.
// Every message ends as one row of the ledger (effects) or parked; duplicates_suppressed are the deliveries that did
// neither, by subtraction. redelivered counts what the group delivered once more after a kill or a rebalance; a worker
// that is killed takes what it had not reported with it, so that is a lower bound. lost are orders that nobody charged,
// doubled the rows of the ledger that should not be there. events are the records of the topic of events; events_missing are
// charges that were never announced; events_republished are publications after the first, which a kill between a
// publication and the note of it makes, and receivers tell by their ID; events_out_of_order are first ones behind a
// later one of their customer; events_with_foreign_id do not carry the ID that belongs to their order. rebalances counts the generations of the group after the
// first. longest_stall_seconds is the longest time in which nothing was finished by any worker, the forming of the
// group included; seconds and per_second count from the start of the first worker until every offset is committed.
//
// The exit code is 0 when the run is complete, nothing is lost or doubled, what was planted is parked, once each, and every
// charge is announced under its ID and in order; 1 when not; 2 for a command line that makes no sense.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
		os.Exit(workerMain())
	}
	os.Exit(demo(os.Args[1:], os.Stdout, os.Stderr))
}

// demo is the command, from its arguments to its exit code.
func demo(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleaning up
	ok, err := run(ctx, o, newTerminal(stdout))
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
	}
	if err != nil || !ok {
		return 1
	}
	return 0
}

// run is the demo: make a place, produce, let the workers work, audit. ok is the audit's verdict.
func run(ctx context.Context, o options, say *terminal) (ok bool, err error) {
	defer say.clear()
	name := fmt.Sprintf("txonce_quickstart_%08x", rand.Uint32())
	say.print("seed %d: %s orders, store %s, broker %s, %s rebalancing", o.seed, thousands(int64(o.messages)), o.store, o.broker, o.rebalance)
	db, err := openDatabase(ctx, o, name)
	if err != nil {
		return false, err
	}
	defer cleanUp(&err, db.Close)
	b, err := openBroker(ctx, o, name)
	if err != nil {
		return false, err
	}
	defer cleanUp(&err, b.Close)

	p := newPlan(o.messages, o.seed)
	begin := time.Now()
	if err := b.Produce(ctx, p, func(done int) {
		say.live(fmt.Sprintf("produced %s of %s deliveries", thousands(int64(done)), thousands(int64(len(p.deliveries)))))
	}); err != nil {
		return false, err
	}
	say.print("%s deliveries lie on %s, produced in %.1f s", thousands(int64(len(p.deliveries))), b, time.Since(begin).Seconds())

	s := &supervisor{plan: p, broker: b, pending: db.Pending, every: o.killEvery, freeze: o.freeze, verbose: o.verbose, say: say, template: settings{
		Store: o.store, Driver: db.driver, Dialect: db.dialect, Database: db.dsn, Broker: o.broker, place: b.Place(),
		Rebalance: o.rebalance, Broken: o.broken,
	}}
	out, failed := s.run(ctx)
	if ctx.Err() != nil {
		return false, errors.New("interrupted; what it made is removed")
	}
	found, err := newAudit(p, eventID(b.Place().Events, o.broken)).run(ctx, db.db, b)
	if err != nil {
		return false, errors.Join(failed, err)
	}
	return conclude(o, p, out, found, b, say), failed
}

// conclude prints what came out, and says whether it is as it should be.
func conclude(o options, p *plan, out outcome, found findings, b broker, say *terminal) (ok bool) {
	f := newFigures(p, out, found)
	if !f.Complete {
		say.print("\nNOT COMPLETE: for %.0f s nothing has moved\n%s  %d events are pending", out.idle.Seconds(), missing(b.Ends(), out.progress.ends), out.progress.pending)
	}
	say.print("\n%s", f.table(p))
	for _, problem := range found.Problems {
		say.print("  %s", problem)
	}
	if o.json {
		say.print("%s", f.line())
	}
	return f.Complete && f.Lost == 0 && f.Doubled == 0 && f.PoisonParked == p.poison && f.MismatchesParked == p.reused &&
		f.UnprovableParked == 0 && f.EventsMissing == 0 && f.EventsOutOfOrder == 0 && f.EventsWithForeignID == 0 && len(found.Problems) == 0
}

// cleanUp removes something, also when ctx has ended, within bounds.
func cleanUp(err *error, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if failed := remove(ctx); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("clean up: %w", failed))
	}
}
