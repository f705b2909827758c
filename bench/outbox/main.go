package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

const slowAck = 2 * time.Millisecond

var kinds = []kind{
	{"txonce", 100_000, 100_000, newTxonce(false)},
	{"watermill-sql v3 forwarder", 8_000, 800, newForwarding},
	{"River", 10_000, 10_000, newJobs},
	{name: "the least there can be", setup: newLeast},
}

var otherProcess = kind{name: "txonce, relay elsewhere", setup: newTxonce(true)}

const (
	drained     = "backlog drained to Kafka"
	drainedSlow = "the same, each acknowledgement 2 ms later"
	fast        = "COMMIT to confirmed, p50, tuned"
	fastWorst   = "COMMIT to confirmed, p99, tuned"
	plain       = "COMMIT to confirmed, p50, by default"
	cost1       = "transaction with a message, 1 connection"
	cost8       = "transaction with a message, 8 connections"
	burstFree   = "burst committed and drained"
	burstHeld   = "the same while a transaction is held open"

	noMessage = "without a message"
)

var questions = []struct{ question, unit string }{
	{drained, "messages/s"},
	{drainedSlow, "messages/s"},
	{fast, "ms"},
	{fastWorst, "ms"},
	{plain, "ms"},
	{cost1, "x without"},
	{cost8, "x without"},
	{burstHeld, "x free"},
}

var targets = []target{
	{question: drained, system: "txonce", over: "watermill-sql v3 forwarder", least: 15},
	{question: drainedSlow, system: "txonce", over: "watermill-sql v3 forwarder", least: 80},
	{question: fast, system: "txonce", most: .5},
	{question: fastWorst, system: "txonce", most: 1},
	{question: fast, system: otherProcess.name, most: 1},
	{question: fastWorst, system: otherProcess.name, most: 5},
	{question: cost1, system: "txonce", least: .9},
	{question: cost8, system: "txonce", least: .9},
	{question: cost8, system: "txonce", over: "watermill-sql v3 forwarder", least: 1.2},
	{question: cost8, system: "txonce", over: "River", least: 1.7},
	{question: burstHeld, system: "txonce", least: .9},
}

func main() {
	rounds := flag.Int("rounds", 3, "`number` of measurements per figure")
	only := flag.String("only", "", "measure only the bare transaction and systems whose names contain this `text`")
	ask := flag.String("ask", "drain,latency,cost,held", "the `questions` to answer")
	heldOpen := flag.Duration("held", time.Minute, "how long a transaction is held open")
	asJSON := flag.Bool("json", false, "print one JSON object instead of the table")
	gate := flag.Bool("gate", false, "fail when a target is missed by more than 15 %")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	r := &report{}
	if err := run(ctx, r, *rounds, *only, *ask, *heldOpen); err != nil {
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
