//go:build unix

// Command failover checks that a consumer of Kafka loses nothing and doubles nothing when its database loses commits.
//
//	make failover
//	go run ./internal/test/system/failover -failovers 5 -database mariadb
//
// Messages go to a real Kafka at a steady pace. Two processes of one consumer group record each message in a table of
// a real PostgreSQL or MariaDB, which has an asynchronous standby. Again and again the standby is cut off, the primary commits
// more for 20 to 800 ms, is killed, and the standby takes over: what it lacks is lost, although its messages are
// acknowledged. Between the failovers the primary is replaced by a backup, or killed and started again, and worker
// processes are killed. After each fault the program waits until all messages sent so far have their effect again, and
// prints which offsets were read again for that.
//
// With -freeze most of these workers are frozen for up to 16 s, which is longer than their session with Kafka.
//
// In the end the audit compares the table with what was sent: each message must have exactly one effect.
//
// With -killers there are messages whose handlers kill their process each time. They must be parked, and no other
// message may be.
//
// -broken runs workers whose store does not remember positions, to see the audit fail.
//
// With -json the last line is one JSON object. The exit code is 0 if every fault was applied and nothing is lost or
// doubled, 1 if not, and 2 if the command line is wrong.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/txonce/txonce/internal/test/address"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == workerCommand {
		os.Exit(workerMain())
	}
	os.Exit(command(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	failovers, backups, restarts int
	rate, workers, partitions    int
	killers, apart, unfinished   int
	patience                     time.Duration
	cooperative, freeze          bool
	seed                         uint64
	broken, json, verbose        bool
	database                     string
	kafka                        []string
}

func parse(args []string, usage io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("failover", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.failovers, "failovers", 100, "how often an asynchronous standby takes over")
	flags.IntVar(&o.backups, "backups", 10, "how often a backup takes over")
	flags.IntVar(&o.restarts, "restarts", 5, "how often the primary is killed and started again")
	flags.IntVar(&o.killers, "killers", 0, "number of further messages whose handler kills its process")
	flags.IntVar(&o.unfinished, "unfinished", 0, "the workers' MaxUnfinished and MaxBatch; 0: their defaults")
	flags.IntVar(&o.apart, "apart", 20, "so many messages are between two killers")
	flags.IntVar(&o.rate, "rate", 400, "messages per second")
	flags.IntVar(&o.workers, "workers", 2, "number of processes")
	flags.IntVar(&o.partitions, "partitions", 4, "number of partitions")
	flags.DurationVar(&o.patience, "patience", 90*time.Second, "how long all effects may take to be there again after a fault")
	flags.BoolVar(&o.cooperative, "cooperative", false, "use cooperative rebalancing")
	flags.BoolVar(&o.freeze, "freeze", false, "freeze most of the workers that would be killed")
	flags.BoolVar(&o.broken, "broken", false, "use workers without positions, to see the audit fail")
	flags.BoolVar(&o.json, "json", false, "print the figures as one last line of JSON")
	flags.BoolVar(&o.verbose, "v", false, "show the workers' logs")
	flags.StringVar(&o.database, "database", postgres, "kind of the database: postgres or mariadb")
	flags.Uint64Var(&o.seed, "seed", uint64(rand.Uint32()), "repeats the plan of an earlier run")
	kafka, err := address.Lookup(".", "TXONCE_KAFKA")
	if err != nil {
		return o, err
	}
	brokers := flags.String("kafka", kafka, "Kafka's `brokers`, host:port,…")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.kafka = strings.FieldsFunc(*brokers, func(r rune) bool { return r == ',' })
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is no flag; -help lists them", flags.Arg(0))
	case o.failovers < 0 || o.backups < 0 || o.restarts < 0 || o.killers < 0:
		return o, errors.New("-failovers, -backups, -restarts and -killers must not be negative")
	case o.apart < 1:
		return o, errors.New("want an -apart of 1 or more")
	case o.rate < 20 || o.workers < 1 || o.partitions < 1:
		return o, errors.New("want a -rate of 20 or more, and at least one of -workers and of -partitions")
	case kinds[o.database] == "":
		return o, fmt.Errorf("-database %q: want postgres or mariadb", o.database)
	case len(o.kafka) == 0:
		return o, errors.New("-kafka: want the addresses of a Kafka, or make services-up")
	}
	return o, nil
}

// command is the program, from its arguments to its exit code.
func command(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "failover:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	found, err := run(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "failover:", err)
	}
	if found != nil {
		fmt.Fprint(stdout, found)
		if o.json {
			line, _ := json.Marshal(found) // never fails
			fmt.Fprintln(stdout, string(line))
		}
	}
	if err != nil || !found.OK {
		return 1
	}
	return 0
}
