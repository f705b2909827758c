package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options is what the command line says.
type options struct {
	messages  int
	seed      uint64
	store     string // sqlite, pgx or sql-postgres
	postgres  string // DSN
	broker    string // kfake or kafka
	kafka     []string
	killEvery time.Duration
	rebalance string // eager or cooperative
	broken    string // "" or one of ways
	json      bool
	verbose   bool
}

// parseOptions reads the command line. What it does not understand it refuses, with the flag's name.
func parseOptions(args []string, usage io.Writer) (options, error) {
	o := options{}
	var brokers string
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.IntVar(&o.messages, "messages", 20_000, "how many orders; each is delivered 1 to 5 times")
	flags.Uint64Var(&o.seed, "seed", 0, "repeats the data and the kills of an earlier run (default: drawn, and said)")
	flags.StringVar(&o.store, "store", "sqlite", "where claims and effects are kept: sqlite, pgx or sql-postgres")
	flags.StringVar(&o.postgres, "postgres", "", "PostgreSQL's `DSN` (default: $TXONCE_POSTGRES, or what make services-up has started)")
	flags.StringVar(&o.broker, "broker", "kfake", "who delivers: kfake, which runs in this process, or kafka")
	flags.StringVar(&brokers, "kafka", "", "Kafka's `brokers`, host:port,… (default: $TXONCE_KAFKA, or what make services-up has started)")
	flags.DurationVar(&o.killEvery, "kill-every", 0, "go on killing workers about this often (default: the planned kills only)")
	flags.StringVar(&o.rebalance, "rebalance", "cooperative", "how the group shares out partitions: eager or cooperative")
	flags.StringVar(&o.broken, "broken", "", "make it wrong, to see the audit fail: "+strings.Join(ways, ", "))
	flags.BoolVar(&o.json, "json", false, "end with the figures as one line of JSON")
	flags.BoolVar(&o.verbose, "v", false, "show what the workers log")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["seed"] {
		o.seed = uint64(rand.Uint32())
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -help lists them", flags.Arg(0))
	}
	return o, errors.Join(o.check(given), o.locate(given, brokers))
}

// check refuses values that mean nothing.
func (o *options) check(given map[string]bool) error {
	oneOf := func(name, value string, known ...string) error {
		if slices.Contains(known, value) {
			return nil
		}
		return fmt.Errorf("-%s %s: want %s", name, value, strings.Join(known, " or "))
	}
	errs := []error{
		oneOf("store", o.store, "sqlite", "pgx", "sql-postgres"),
		oneOf("broker", o.broker, "kfake", "kafka"),
		oneOf("rebalance", o.rebalance, "eager", "cooperative"),
	}
	if given["broken"] {
		errs = append(errs, oneOf("broken", o.broken, ways...))
	}
	if o.messages < minRun || o.messages > maxRun {
		errs = append(errs, fmt.Errorf("-messages %d: want %d to %d", o.messages, minRun, maxRun))
	}
	if given["kill-every"] && o.killEvery < 250*time.Millisecond {
		errs = append(errs, fmt.Errorf("-kill-every %v: want 250ms or more", o.killEvery))
	}
	return errors.Join(errs...)
}

// locate finds the servers that are asked for, and refuses addresses of servers that are not.
func (o *options) locate(given map[string]bool, brokers string) error {
	var errs []error
	if o.store == "sqlite" && given["postgres"] {
		errs = append(errs, errors.New("-postgres is of no use with -store sqlite; add -store pgx or -store sql-postgres"))
	}
	if o.broker == "kfake" && given["kafka"] {
		errs = append(errs, errors.New("-kafka is of no use with -broker kfake; add -broker kafka"))
	}
	if o.postgres == "" && (o.store == "pgx" || o.store == "sql-postgres") {
		if o.postgres = service("TXONCE_POSTGRES"); o.postgres == "" {
			errs = append(errs, fmt.Errorf("-store %s needs -postgres with the DSN of a PostgreSQL, or make services-up", o.store))
		}
	}
	if brokers == "" && o.broker == "kafka" {
		if brokers = service("TXONCE_KAFKA"); brokers == "" {
			errs = append(errs, errors.New("-broker kafka needs -kafka with the addresses of a Kafka, or make services-up"))
		}
	}
	if brokers != "" {
		o.kafka = strings.Split(brokers, ",")
	}
	return errors.Join(errs...)
}

// service is where make services-up says that a server is; empty: nowhere.
func service(name string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	f, err := os.Open(filepath.Join(".services", "env"))
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), "="); key == name {
			return value
		}
	}
	return ""
}
