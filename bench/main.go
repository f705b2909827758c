// Command bench compares txonce with transactions by hand and with other libraries, on a fresh PostgreSQL with default
// durability and on the brokers of make services-up.
//
//	make bench                        # everything; writes docs/performance.md and its charts
//	make bench-short                  # fewer rounds and rows, less than 3 minutes
//	go run . -short -only singles,batches -json
//
// The ways to do the same work are measured in turn, in short slots of one run. Each round divides a way's figure by
// that of the way that it is compared with. The median over the rounds is reported, with the quartiles. So the ratios
// hold on any machine, and the rates only on this one. After each section the ledger is audited: it must have one row
// for each message that was handled.
//
// The command ends with exit code 1 if a figure is more than 15 % off its target, or if it is far worse than what is
// known of a target that is missed (gates.go), and names it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// size is how much is measured.
type size struct {
	short         bool
	rounds        int           // of slots
	slot          time.Duration // for one way in a round
	backlog       int           // backlogs are divided by this
	backlogRounds int           // of backlogs
	peers         int           // the backlog of a library whose queue is in PostgreSQL
	rows          []int         // of the table, in growth
	claims        int           // in each slot of growth
	idle          time.Duration // how long idle relays are watched
	keys          int           // whose bytes are measured
}

var (
	full = size{
		rounds: 17, slot: 300 * time.Millisecond, backlog: 1, backlogRounds: 5, peers: 400,
		rows: []int{1e5, 1e6, 1e7}, claims: 5000, idle: 10 * time.Second, keys: 1e6,
	}
	short = size{
		short: true, rounds: 5, slot: 100 * time.Millisecond, backlog: 10, backlogRounds: 3, peers: 100,
		rows: []int{1e5, 1e6}, claims: 5000, idle: 3 * time.Second, keys: 1e5,
	}
	tiny = size{
		rounds: 1, slot: 30 * time.Millisecond, backlog: 50, backlogRounds: 1, peers: 20,
		rows: []int{1e3, 1e4}, claims: 500, idle: 300 * time.Millisecond, keys: 1e4,
	}
)

// bench is a run.
type bench struct {
	server *server
	size   size
	report *report
	began  time.Time
}

type section struct {
	name string
	run  func(*bench, context.Context) error
	long bool // it is not in a short run
}

// sections in the order of their runs.
var sections = []section{
	{"singles", (*bench).singles, false},
	{"batches", (*bench).batches, false},
	{"costs", (*bench).costs, false},
	{"memory", (*bench).memory, false},
	{"peers", (*bench).peers, false},
	{"kafka", (*bench).kafka, false},
	{"brokers", (*bench).brokers, true},
	{"transactions", (*bench).transactions, false},
	{"drains", (*bench).drains, false},
	{"latencies", (*bench).latencies, false},
	{"path", (*bench).path, true},
	{"idle", (*bench).idle, false},
	{"held", (*bench).held, false},
	{"stats", (*bench).stats, true},
	{"keys", (*bench).keySizes, false},
	{"sweeps", (*bench).sweeps, false},
	{"guard", (*bench).guard, false},
	{"audits", (*bench).audits, false},
	{"growth", (*bench).growth, true},
	{"articles", (*bench).articles, true},
}

func main() {
	isShort := flag.Bool("short", false, "fewer rounds and rows")
	isTiny := flag.Bool("tiny", false, "as little as possible, to see that everything runs; there are no gates")
	only := flag.String("only", "", "run only these `sections`, with commas between them")
	asJSON := flag.Bool("json", false, "print JSON instead of tables")
	docs := flag.String("docs", "", "write the tables of a run without -short and -tiny into performance.md of this `folder`, and charts")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelError)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{size: full, report: &report{Short: *isShort || *isTiny}, began: time.Now()}
	if *isShort {
		b.size = short
	}
	if *isTiny {
		b.size = tiny
	}
	chosen, err := choose(*only, b.size.short)
	if b.report.Short && *docs != "" {
		err = errors.Join(err, errors.New("-docs is for figures of full runs: leave out -short and -tiny"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	b.report.Whole = len(chosen) == len(sections) && !b.report.Short
	err = b.run(ctx, chosen)
	if !*isTiny {
		b.report.judge(gates)
	}
	write := b.report.write
	if *asJSON {
		write = b.report.writeJSON
	}
	err = errors.Join(err, write(os.Stdout)) // also what was measured before a failure
	if err == nil && *docs != "" {
		err = b.report.writeDocs(*docs)
	}
	for _, v := range b.report.failed() {
		err = errors.Join(err, fmt.Errorf("too far from its target: %s: %s", v.What, v.figures()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// choose returns the sections that only names, or those of a short or full run if it names none.
func choose(only string, short bool) (chosen []section, err error) {
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
		if slices.Contains(names, s.name) || len(names) == 0 && !(s.long && short) {
			chosen = append(chosen, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("-only %s: there is no such section; there are %s", name, strings.Join(all, ","))
		}
	}
	return chosen, nil
}

func (b *bench) run(ctx context.Context, chosen []section) (err error) {
	if slices.ContainsFunc(chosen, func(s section) bool { return s.name == "articles" }) {
		if err := needsRedis(ctx); err != nil {
			return err
		}
	}
	if b.server, err = startServer(ctx); err != nil {
		return err
	}
	defer b.server.close()
	b.report.Machine = b.server.machine
	for _, s := range chosen {
		if err := s.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// progress prints a line when something begins.
func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}
