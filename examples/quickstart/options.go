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
	messages  int
	seed      uint64
	store     string // one of stores
	postgres  string // DSN
	mysql     string // DSN
	broker    string // one of brokers
	kafka     []string
	sqs       string // URL
	rabbitmq  string // URL
	killEvery time.Duration
	freeze    bool
	rebalance string // eager or cooperative
	broken    string // "" or one of ways
	telemetry string // address for metrics; empty: none
	json      bool
	verbose   bool
	dashboard string // address; empty: none
	chart     string // file; empty: none
}

var (
	stores  = []string{"sqlite", "pgx", "sql-postgres", "mysql"}
	brokers = []string{"kfake", "kafka", "sqs", "rabbitmq"}
)

// parseOptions reads the command line. Its errors name the flag.
func parseOptions(args []string, usage io.Writer) (options, error) {
	o := options{}
	var kafkas string
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.messages, "messages", 20_000, "how many orders; each is delivered 1 to 5 times")
	flags.Uint64Var(&o.seed, "seed", 0, "repeats the data and the kills of an earlier run (default: random; the output names it)")
	flags.StringVar(&o.store, "store", "sqlite", "the database for claims and effects: "+strings.Join(stores, ", "))
	flags.StringVar(&o.postgres, "postgres", "", "PostgreSQL's `DSN` (default: $TXONCE_POSTGRES, or the server of make services-up)")
	flags.StringVar(&o.broker, "broker", "kfake", "kfake (a Kafka in this process), kafka, sqs or rabbitmq")
	flags.StringVar(&kafkas, "kafka", "", "Kafka's `brokers`, host:port,… (default: $TXONCE_KAFKA, or the server of make services-up)")
	flags.StringVar(&o.mysql, "mysql", "", "a `DSN` of MySQL or MariaDB (default: $TXONCE_MYSQL, likewise)")
	flags.StringVar(&o.sqs, "sqs", "", "the `URL` of a server that speaks SQS's protocol (default: $TXONCE_SQS, likewise)")
	flags.StringVar(&o.rabbitmq, "rabbitmq", "", "RabbitMQ's `URL` (default: $TXONCE_RABBITMQ, likewise)")
	flags.DurationVar(&o.killEvery, "kill-every", 0, "kill workers about this often (default: only the planned kills)")
	flags.BoolVar(&o.freeze, "freeze", false, fmt.Sprintf("freeze a worker for %v, as if its machine paused (default with -broker sqs)", frozenFor))
	flags.StringVar(&o.rebalance, "rebalance", "cooperative", "the group's rebalance protocol: eager or cooperative")
	flags.StringVar(&o.broken, "broken", "", "use a faulty worker, to see the audit fail: "+strings.Join(ways, ", "))
	flags.StringVar(&o.telemetry, "telemetry", "",
		"serve the workers' metrics to Prometheus at this `address`, such as 127.0.0.1:9464, under /metrics")
	flags.BoolVar(&o.json, "json", false, "print the figures as one last line of JSON")
	flags.StringVar(&o.dashboard, "dashboard", "",
		"show the run in a browser at this `address`, such as 127.0.0.1:7070, until Ctrl-C")
	flags.StringVar(&o.chart, "chart", "", "draw the deliveries per second, and the kills, as SVG in this `file`")
	flags.BoolVar(&o.verbose, "v", false, "show the workers' logs")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["seed"] {
		o.seed = uint64(rand.Uint32())
	}
	if !given["freeze"] {
		o.freeze = o.broker == "sqs"
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -help lists them", flags.Arg(0))
	}
	return o, errors.Join(o.check(given), o.locate(given, kafkas))
}

// check refuses invalid values.
func (o *options) check(given map[string]bool) error {
	oneOf := func(name, value string, known ...string) error {
		if slices.Contains(known, value) {
			return nil
		}
		return fmt.Errorf("-%s %s: want %s", name, value, strings.Join(known, " or "))
	}
	errs := []error{
		oneOf("store", o.store, stores...),
		oneOf("broker", o.broker, brokers...),
		oneOf("rebalance", o.rebalance, "eager", "cooperative"),
	}
	if given["broken"] {
		errs = append(errs, oneOf("broken", o.broken, ways...))
	}
	if o.broken != "" && o.store == "mysql" {
		errs = append(errs, errors.New("-broken is written for SQLite and PostgreSQL; leave out -store mysql"))
	}
	if o.messages < minRun || o.messages > maxRun {
		errs = append(errs, fmt.Errorf("-messages %d: want %d to %d", o.messages, minRun, maxRun))
	}
	if given["kill-every"] && o.killEvery < 250*time.Millisecond {
		errs = append(errs, fmt.Errorf("-kill-every %v: want 250ms or more", o.killEvery))
	}
	return errors.Join(errs...)
}

// locate finds the addresses of the needed servers, and refuses addresses of servers that the run would not use.
func (o *options) locate(given map[string]bool, kafkas string) error {
	var errs []error
	for _, server := range []struct {
		flag    string
		address *string
		env     string
		title   string
		option  string   // the flag that selects the server
		value   string   // of option
		askedBy []string // values of option that select it
	}{
		{
			"postgres", &o.postgres, "TXONCE_POSTGRES", "DSN of a PostgreSQL", "store", o.store,
			[]string{"pgx", "sql-postgres"},
		},
		{"mysql", &o.mysql, "TXONCE_MYSQL", "DSN of a MySQL or MariaDB", "store", o.store, []string{"mysql"}},
		{"kafka", &kafkas, "TXONCE_KAFKA", "addresses of a Kafka", "broker", o.broker, []string{"kafka"}},
		{"sqs", &o.sqs, "TXONCE_SQS", "URL of an SQS", "broker", o.broker, []string{"sqs"}},
		{"rabbitmq", &o.rabbitmq, "TXONCE_RABBITMQ", "URL of a RabbitMQ", "broker", o.broker, []string{"rabbitmq"}},
	} {
		switch asked := slices.Contains(server.askedBy, server.value); {
		case !asked && given[server.flag]:
			errs = append(errs, fmt.Errorf("-%s is of no use with -%s %s; add -%[2]s %[4]s", server.flag, server.option,
				server.value,
				strings.Join(server.askedBy, " or -"+server.option+" ")))
		case asked && *server.address == "":
			found, err := address.Lookup(".", server.env)
			if *server.address = found; err != nil {
				errs = append(errs, err)
			} else if found == "" {
				errs = append(errs, fmt.Errorf("-%s %s needs -%s with the %s, or make services-up", server.option,
					server.value, server.flag, server.title))
			}
		}
	}
	if kafkas != "" {
		o.kafka = strings.Split(kafkas, ",")
	}
	return errors.Join(errs...)
}
