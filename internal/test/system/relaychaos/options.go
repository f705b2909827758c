//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/txonce/txonce/internal/test/address"
)

// options are the values of the command line.
type options struct {
	messages int // number of committed messages
	keys     int
	rate     int // messages per second
	kills    int
	pauses   int
	lease    time.Duration
	batch    int
	seed     uint64
	broken   string // "" or one of ways
	json     bool
	verbose  bool
	postgres string
	kafka    []string
}

var ways = []string{"lose", "mark-first", "disorder", "dual-write"}

func parseOptions(args []string, usage io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("relaychaos", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.messages, "messages", 100_000, "number of committed messages")
	flags.IntVar(&o.keys, "keys", 1000, "number of keys")
	flags.IntVar(&o.rate, "rate", 900, "messages enqueued per second")
	flags.IntVar(&o.kills, "kills", 20, "number of SIGKILLs")
	flags.IntVar(&o.pauses, "pauses", 20, "number of SIGSTOPs, each longer than the lease")
	flags.DurationVar(&o.lease, "lease", 2*time.Second, "duration of a relay's lease")
	flags.IntVar(&o.batch, "batch", 100, "most messages that a worker of a relay leases at once")
	flags.Uint64Var(&o.seed, "seed", 0, "repeats the data and the plan of an earlier run (default: random; the output names it)")
	flags.StringVar(&o.broken, "broken", "", "use a faulty program, to see the audit fail: "+strings.Join(ways, ", "))
	flags.BoolVar(&o.json, "json", false, "print the figures as one last line of JSON")
	flags.BoolVar(&o.verbose, "v", false, "show the relays' logs")
	postgres, err := address.Lookup(".", "TXONCE_POSTGRES")
	if err != nil {
		return o, err
	}
	kafka, err := address.Lookup(".", "TXONCE_KAFKA")
	if err != nil {
		return o, err
	}
	flags.StringVar(&o.postgres, "postgres", postgres, "PostgreSQL's `DSN`")
	brokers := flags.String("kafka", kafka, "Kafka's `brokers`, host:port,…")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["seed"] {
		o.seed = uint64(rand.Uint32())
	}
	if *brokers != "" {
		o.kafka = strings.Split(*brokers, ",")
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -help lists them", flags.Arg(0))
	}
	return o, o.check()
}

// check refuses invalid values.
func (o *options) check() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.broken != "" && !slices.Contains(ways, o.broken), "-broken %s: want one of %s", o.broken,
		strings.Join(ways, ", "))
	refuse(o.messages < 100, "-messages %d: want 100 or more", o.messages)
	refuse(o.keys < 1, "-keys %d: want 1 or more", o.keys)
	refuse(o.rate < 1, "-rate %d: want 1 or more", o.rate)
	refuse(o.kills < 0, "-kills %d: want 0 or more", o.kills)
	refuse(o.pauses < 0, "-pauses %d: want 0 or more", o.pauses)
	refuse(o.batch < 1, "-batch %d: want 1 or more", o.batch)
	refuse(o.lease < 500*time.Millisecond, "-lease %v: want 500ms or more", o.lease)
	refuse(o.postgres == "", "-postgres: want the DSN of a PostgreSQL, or make services-up")
	refuse(len(o.kafka) == 0, "-kafka: want the addresses of a Kafka, or make services-up")
	return errors.Join(errs...)
}
