package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/pgxstore"
)

const slowAck = 2 * time.Millisecond

var kinds = []kind{
	{"txonce", 100_000, 100_000, newTxonce(pgxstore.OutboxTable, false)},
	{"txonce rotating", 100_000, 100_000, newTxonce(pgxstore.OutboxRotating, false)},
	{"txonce WAL", 100_000, 100_000, newTxonce(pgxstore.OutboxWAL, false)},
	{"watermill-sql v3 forwarder", 8_000, 800, newForwarding},
	{"River", 10_000, 10_000, newJobs},
}

var otherProcess = kind{name: "txonce, relay elsewhere", setup: newTxonce(pgxstore.OutboxTable, true)}

const (
	drained     = "backlog drained to Kafka"
	drainedSlow = "the same, each acknowledgement 2 ms later"
	fast        = "COMMIT to confirmed, p50, tuned"
	fastWorst   = "COMMIT to confirmed, p99, tuned"
	plain       = "COMMIT to confirmed, p50, by default"
	cost1       = "transaction with a message, 1 connection"
	cost8       = "transaction with a message, 8 connections"
	burstHeld   = "burst, while a transaction is held open"
)

var targets = []target{
	{question: drained, system: "txonce", over: "watermill-sql v3 forwarder", least: 15},
	{question: drained, system: "txonce WAL", over: "watermill-sql v3 forwarder", least: 25},
	{question: drainedSlow, system: "txonce", over: "watermill-sql v3 forwarder", least: 80},
	{question: fast, system: "txonce", most: .5},
	{question: fastWorst, system: "txonce", most: 1},
	{question: fast, system: otherProcess.name, most: 1},
	{question: fastWorst, system: otherProcess.name, most: 5},
	{question: cost1, system: "txonce", least: .9},
	{question: cost8, system: "txonce", least: .9},
	{question: cost8, system: "txonce", over: "watermill-sql v3 forwarder", least: 1.2},
	{question: cost8, system: "txonce", over: "River", least: 1.7},
	{question: burstHeld, system: "txonce rotating", least: .9},
	{question: burstHeld, system: "txonce WAL", least: .9},
}

func main() {
	rounds := flag.Int("rounds", 3, "how often each figure is measured")
	only := flag.String("only", "", "measure only systems whose name contains this, beside the bare transaction")
	heldOpen := flag.Duration("held", time.Minute, "how long a transaction is held open; 0 leaves this out")
	asJSON := flag.Bool("json", false, "print one JSON object instead of the table")
	gate := flag.Bool("gate", false, "fail when a target is missed by more than 15 %")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	r := &report{}
	if err := run(ctx, r, *rounds, *only, *heldOpen); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	r.judge(targets)
	write := r.write
	if *asJSON {
		write = r.writeJSON
	}
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if *gate && r.missed() > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, r *report, rounds int, only string, heldOpen time.Duration) error {
	var chosen []kind
	for _, k := range kinds {
		if strings.Contains(k.name, only) {
			chosen = append(chosen, k)
		}
	}
	results := map[[2]string][]float64{}
	note := func(question, system string, v float64) {
		key := [2]string{question, system}
		results[key] = append(results[key], v)
		fmt.Fprintf(os.Stderr, "%-45s %-28s %s\n", question, system, number(v))
	}
	for range rounds { // round by round, so that a noisy minute does not hit one system alone
		for _, k := range chosen {
			for _, d := range []struct {
				question string
				n        int
				delay    time.Duration
			}{{drained, k.drain, 0}, {drainedSlow, k.slow, slowAck}} {
				v, err := drain(ctx, k, d.n, d.delay)
				if err != nil {
					return err
				}
				note(d.question, k.name, v)
			}
		}
		for _, k := range append([]kind{otherProcess}, chosen...) {
			p50, p99, err := latency(ctx, k, 500, true)
			if err != nil {
				return err
			}
			note(fast, k.name, p50.Seconds()*1000)
			note(fastWorst, k.name, p99.Seconds()*1000)
			if p50, _, err = latency(ctx, k, 200, false); err != nil {
				return err
			}
			note(plain, k.name, p50.Seconds()*1000)
		}
	}
	for _, c := range []struct {
		question string
		conns    int
	}{{cost1, 1}, {cost8, connections}} {
		with := append([]kind{{name: "without a message", setup: newBare}}, chosen...)
		ratios, err := transactions(ctx, with, c.conns, 7*rounds)
		if err != nil {
			return err
		}
		for i, k := range with {
			for _, v := range ratios[i] {
				results[[2]string{c.question, k.name}] = append(results[[2]string{c.question, k.name}], v)
			}
		}
	}
	for _, k := range chosen {
		if heldOpen == 0 || !strings.HasPrefix(k.name, "txonce") {
			continue
		}
		free, err := held(ctx, k, heldOpen, false)
		if err != nil {
			return err
		}
		holding, err := held(ctx, k, heldOpen, true)
		if err != nil {
			return err
		}
		note(burstHeld, k.name, holding/free)
	}
	for _, q := range []struct{ question, unit string }{
		{drained, "messages/s"}, {drainedSlow, "messages/s"}, {fast, "ms"}, {fastWorst, "ms"}, {plain, "ms"},
		{cost1, "x without"}, {cost8, "x without"}, {burstHeld, "x free"},
	} {
		for _, name := range names(chosen) {
			if values := results[[2]string{q.question, name}]; len(values) > 0 {
				r.add(q.question, name, q.unit, values)
			}
		}
	}
	return nil
}

func names(chosen []kind) []string {
	all := []string{"without a message"}
	for _, k := range chosen {
		all = append(all, k.name)
	}
	return append(all, otherProcess.name)
}
