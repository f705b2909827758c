// Command simulate runs the simulations of consumertest and of Kafka's positions in several processes, and adds up what
// happened. It needs no server.
//
//	go run ./internal/test/simulate                       # 60 s in two processes
//	SEED=1 FROM=214 CASES=1 go run ./internal/test/simulate # a case again, with its trace
//	go run ./internal/test/simulate -json internal/test/proof/runs/sim.json # also writes the counts
//
// It exits 1 if a case fails, if no fault happened, or, without CASES, if a fault happened less often than -least says.
// The JSON file has the counts in the form of package proof: docs/proof.md is written from it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	var o options
	flag.IntVar(&o.seconds, "seconds", 60, "how long to run, without CASES")
	flag.IntVar(&o.processes, "processes", 2, "how many processes run cases")
	flag.IntVar(&o.least, "least", 100, "how often each fault must happen, without CASES")
	flag.StringVar(&o.json, "json", "", "write the counts to this `file`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}
