package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	seconds, processes, least int
	json                      string

	seed, from int
	cases      string // of the environment
}

// simulations are the tests that run cases, and which part of the time each gets.
var simulations = []struct {
	pkg, test string
	part      int
}{
	{"github.com/txonce/txonce/consumer/consumertest", "TestSimulation", 1},
	{"github.com/txonce/txonce/adapters/kafka", "TestPositionsInASimulation", 6},
}

func run(ctx context.Context, o options) error {
	var err error
	if o.seed, err = number("SEED", 1); err != nil {
		return err
	}
	if o.from, err = number("FROM", 0); err != nil {
		return err
	}
	if _, err = number("CASES", 0); err != nil {
		return err
	}
	if o.cases = os.Getenv("CASES"); o.cases != "" {
		o.processes = 1
	}
	dir, err := os.MkdirTemp("", "txonce-simulate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var counted []counts
	var took time.Duration
	for _, s := range simulations {
		binary := filepath.Join(dir, s.test)
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, s.pkg).CombinedOutput(); err != nil {
			return fmt.Errorf("build the simulation: %w\n%s", err, out)
		}
		began := time.Now()
		all, err := o.processesOf(ctx, binary, max(1, o.seconds/s.part))
		if err != nil {
			return err
		}
		counted, took = append(counted, all...), took+time.Since(began)
	}
	return o.report(add(counted), took)
}

// processesOf runs the cases of one test in several processes.
func (o options) processesOf(ctx context.Context, binary string, seconds int) ([]counts, error) {
	counted, failed := make([]counts, o.processes), make([]error, o.processes)
	var all sync.WaitGroup
	for i := range o.processes {
		all.Go(func() { counted[i], failed[i] = o.process(ctx, binary, seconds, i) })
	}
	all.Wait()
	return counted, errors.Join(failed...)
}

// process runs the cases of one process.
func (o options) process(ctx context.Context, binary string, seconds, i int) (c counts, err error) {
	path := fmt.Sprint(binary, ".", i)
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^"+filepath.Base(binary)+"$", "-test.v", "-test.timeout", "24h")
	cmd.Dir = filepath.Dir(binary)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "TXONCE_SIMULATION=make sim", "COUNTS="+path,
		"SEED="+strconv.Itoa(o.seed), "FROM="+strconv.Itoa(o.from+i), "STRIDE="+strconv.Itoa(o.processes))
	if o.cases == "" {
		cmd.Env = append(cmd.Env, "SECONDS="+strconv.Itoa(seconds))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return c, fmt.Errorf("%w\n%s", err, out)
	}
	if o.cases == "1" {
		fmt.Println(strings.TrimSpace(string(out)))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// number returns a number of the environment, and otherwise if the environment has none.
func number(name string, otherwise int) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: want a number from 0 on", name, text)
	}
	return int(n), nil
}
