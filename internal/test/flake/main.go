// Command flake runs the tests of packages many times in shuffled order while all CPUs are busy, and counts the
// failures of each test.
//
//	go run ./internal/test/flake -n 50 ./adapters/kafka ./consumer
//	go run ./internal/test/flake -n 200 -run 'TestSubscriber$' ./adapters/awssqs
//
// RACE in the environment has the flags of the race detector, as for run.sh; without it, -race.
//
// It prints a line per run and then a table of the tests that failed. It keeps the output of each failed run in a file,
// which the line names. The exit code is 1 if a run failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"
)

func main() {
	s := settings{}
	flag.IntVar(&s.runs, "n", 20, "runs per package")
	flag.StringVar(&s.run, "run", "", "only tests that match this, as in go test -run")
	flag.BoolVar(&s.short, "short", false, "pass -short to the tests")
	flag.DurationVar(&s.timeout, "timeout", 20*time.Minute, "limit of one run")
	load := flag.Int("load", runtime.NumCPU(), "goroutines that keep the CPUs busy meanwhile; 0: none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	burn(ctx, *load)
	failed, err := s.try(ctx, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "flake:", err)
	}
	if failed || err != nil {
		os.Exit(1) //nolint:gocritic // the process ends anyway
	}
}

// burn keeps n CPUs busy until ctx ends.
func burn(ctx context.Context, n int) {
	for range n {
		go func() {
			for ctx.Err() == nil {
			}
		}()
	}
}
