// Command quickstart is the demo of txonce: it kills workers in the middle of payments and then audits the ledger.
//
//	go run ./examples/quickstart
//
// It needs only Go. The orders are on a Kafka topic. Each order is delivered 1 to 5 times, shuffled, and some orders
// have copies on several partitions. A few orders are poison, and a few reuse the key of another order with different
// content.
//
// Three worker processes in one consumer group charge the orders. The ledger has no unique key, so a second charge
// would show. The demo kills workers with SIGKILL inside an open transaction, after the ledger's row is written and
// before the commit, and starts them again. Each charge enqueues an event in the same transaction, and every worker
// runs a relay for the outbox, so a kill ends a relay too and the others take over.
//
// When the group has committed every offset and the outbox is empty, an audit compares the ledger, the dead letters and
// the topic of events with the produced orders.
//
// -dashboard 127.0.0.1:7070 shows the run in a browser, and its result until Ctrl-C. -chart FILE.svg draws it;
// docs/quickstart.svg is made by
//
//	go run ./examples/quickstart -messages 60000 -kill-every 3s -chart docs/quickstart.svg
//
// By default the database is a SQLite file and Kafka runs in this process (kfake). -store and -broker select real
// servers:
//
//	make services-up
//	go run ./examples/quickstart -store pgx -broker kafka -messages 200000 -kill-every 2s -json
//	go run ./examples/quickstart -store mysql -broker sqs
//	go run ./examples/quickstart -store sql-postgres -broker rabbitmq
//
// With -broker sqs or rabbitmq the orders are in one queue, and any worker may get any order. With -broker sqs one
// worker is also frozen for longer than the visibility timeout (-freeze): the queue gives its orders to other workers,
// and then the frozen worker continues.
//
// worker.go is the file to copy, and ledger.go is the handler. worker_sql.go shows what differs on database/sql;
// worker_kafka.go, worker_sqs.go and worker_rabbitmq.go show what differs on each broker. The other files run the demo:
// plan.go derives from -seed what is delivered and which worker is killed when, broker.go and database.go make and
// remove the topics and tables, supervise.go and process.go run the workers, fault.go stops a worker where it should be
// killed, and audit.go checks the result.
//
// -broken mark-first and -broken effect-first replace the worker by code that is often written by hand, with the claim
// in a transaction of its own. -broken dual-write replaces it by a worker that publishes after it has committed
// (broken.go). The audit then finds lost or doubled orders or missing events, which proves that it can fail.
//
// The auditor of txonce runs too (auditor.go): beside the workers, and at the end. It knows claims, ledger and topic,
// but not the plan. It finds what -broken has broken, and nothing else.
//
// # Figures
//
// With -json the last line is one JSON object:
//
//   - deliveries counts all copies that were produced.
//   - effects counts the rows in the ledger. Every message ends as one of these rows or as a dead letter.
//   - duplicates_suppressed counts the other deliveries, by subtraction.
//   - redelivered counts deliveries that the broker repeated after a kill or a rebalance. It is a lower bound: a killed
//     worker may not have reported all that it had handled.
//   - lost counts orders without a charge; doubled counts surplus rows in the ledger.
//   - events counts the records on the topic of events; events_missing counts charges without an event.
//   - events_republished counts repeated events: a relay was killed between publishing an event and recording that.
//     Receivers recognize the repeat by its ID.
//   - events_out_of_order counts events whose first publication came after a later event of the same customer.
//   - events_with_foreign_id counts events whose ID does not belong to their order.
//   - auditor_claims counts claims that the auditor compared at the end: auditor_lost of them had no charge,
//     auditor_doubled several, and auditor_events_lost no event. auditor_meanwhile counts those that it compared beside
//     the workers, and auditor_false its findings there.
//   - rebalances counts the generations of the group after the first.
//   - longest_stall_seconds is the longest time without a finished order, including the time until the group was
//     formed.
//   - scraped has the counters of -telemetry. processed may be lower than effects by the orders that a worker had
//     committed and not yet reported when it was killed.
//   - seconds and per_second count from the start of the first worker until every offset is committed.
//
// -telemetry 127.0.0.1:9464 serves the metrics of adapters/telemetry for all workers to Prometheus (telemetry.go).
//
// The exit code is 0 if the run is complete, nothing is lost or doubled, exactly the planted messages are parked, and
// every charge was announced under its ID and in order. It is 1 if not, and 2 if the command line is wrong.
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process without cleaning up
	ok, err := run(ctx, o, newTerminal(stdout))
	if err != nil {
		fmt.Fprintln(stderr, "quickstart:", err)
	}
	if err != nil || !ok {
		return 1
	}
	return 0
}

// run makes the topics and tables, produces the orders, runs the workers and audits the result. ok is the audit's
// verdict.
func run(ctx context.Context, o options, say *terminal) (ok bool, err error) {
	defer say.clear()
	name := fmt.Sprintf("txonce_quickstart_%08x", rand.Uint32())
	say.print("seed %d: %s orders, store %s, broker %s, %s rebalancing", o.seed, thousands(int64(o.messages)), o.store,
		o.broker, o.rebalance)
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
	if o.dashboard != "" {
		serving, stop := context.WithCancel(ctx)
		defer stop()
		wait, failed := serveDashboard(serving, o.dashboard, db, say)
		if failed != nil {
			return false, failed
		}
		defer func() {
			switch {
			case err != nil: // to be read now
				stop()
			case !o.json: // its line is the last one
				say.print("the dashboard goes on until Ctrl-C")
			}
			_ = wait() // it has ended with serving
		}()
	}

	p := newPlan(o.messages, o.seed)
	begin := time.Now()
	if err := b.Produce(ctx, p, func(done int) {
		say.live(fmt.Sprintf("produced %s of %s deliveries", thousands(int64(done)),
			thousands(int64(len(p.deliveries)))))
	}); err != nil {
		return false, err
	}
	say.print("%s deliveries are on %s, produced in %.1f s", thousands(int64(len(p.deliveries))), b,
		time.Since(begin).Seconds())

	var served *metrics
	if o.telemetry != "" {
		serving, stop := context.WithCancel(ctx)
		defer stop()
		if served, err = serveMetrics(serving, o.telemetry); err != nil {
			return false, err
		}
		say.print("metrics of all workers: %s", served.url())
	}
	s := &supervisor{metrics: served, plan: p, broker: b, pending: db.Pending, trials: db.Trials, every: o.killEvery, freeze: o.freeze, verbose: o.verbose, say: say, template: settings{
		Store: o.store, Driver: db.driver, Dialect: db.dialect, Database: db.dsn, Broker: o.broker, place: b.Place(),
		Rebalance: o.rebalance, Broken: o.broken, Telemetry: o.telemetry != "",
	}}
	var auditor audited
	out, failed, err := runAudited(ctx, s, db, o.broken == "", &auditor)
	if ctx.Err() != nil {
		return false, errors.New("interrupted; topics and tables were removed")
	}
	if err != nil {
		return false, errors.Join(failed, err)
	}
	plain := newAudit(p, eventID(b.Place().Events))
	found, err := plain.run(ctx, db.db, b)
	if err == nil {
		err = db.audit(ctx, b.Place().Events, plain.published, &auditor)
	}
	if err != nil {
		return false, errors.Join(failed, err)
	}
	found.Auditor = auditor
	f := newFigures(p, out, found)
	if served != nil {
		counters, err := served.scrape(ctx)
		if err != nil {
			return false, errors.Join(failed, err)
		}
		f.Scraped = &counters
	}
	if o.chart != "" {
		title := fmt.Sprintf("%s deliveries of %s orders, %d kills: %d lost, %d doubled",
			thousands(int64(f.Deliveries)), thousands(int64(o.messages)), out.kills, f.Lost, f.Doubled)
		failed = errors.Join(failed, writeChart(o.chart, title, out.samples))
	}
	return conclude(o, p, out, found, f, b, say), failed
}

// runAudited runs the workers, with the auditor beside them if meanwhile is true. failed is an error of the workers,
// err one of the auditor.
func runAudited(ctx context.Context, s *supervisor, db *database, meanwhile bool,
	found *audited,
) (out outcome, failed, err error) {
	auditing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		if !meanwhile {
			ended <- nil
			return
		}
		ended <- db.auditMeanwhile(auditing, found)
	}()
	out, failed = s.run(ctx)
	stop()
	return out, failed, <-ended
}

// conclude prints the figures and reports whether the run was faultless.
func conclude(o options, p *plan, out outcome, found findings, f figures, b broker, say *terminal) (ok bool) {
	if !f.Complete {
		say.print("\nNOT COMPLETE: no progress for %.0f s\n%s  %d events are pending", out.idle.Seconds(),
			missing(b.Ends(), out.progress.ends), out.progress.pending)
	}
	say.print("\n%s", f.table(p))
	for _, problem := range found.Problems {
		say.print("  %s", problem)
	}
	if o.json {
		say.print("%s", f.line())
	}
	return f.Complete && f.Lost == 0 && f.Doubled == 0 && f.PoisonParked == p.poison &&
		f.MismatchesParked == p.reused &&
		f.UnprovableParked == 0 && f.EventsMissing == 0 && f.EventsOutOfOrder == 0 && f.EventsWithForeignID == 0 &&
		found.Auditor.faults() == 0 && len(found.Problems) == 0
}

// cleanUp calls remove, even after ctx has ended, and gives it one minute.
func cleanUp(err *error, remove func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if failed := remove(ctx); failed != nil {
		*err = errors.Join(*err, fmt.Errorf("clean up: %w", failed))
	}
}
