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

// pkg has the simulation, as its test TestSimulation.
const pkg = "github.com/txonce/txonce/consumer/consumertest"

func run(ctx context.Context, o options) error {
	o.seed, o.from, o.cases = number("SEED", 1), number("FROM", 0), os.Getenv("CASES")
	if o.cases != "" {
		o.processes = 1
	}
	dir, err := os.MkdirTemp("", "txonce-simulate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "simulation.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("build the simulation: %w\n%s", err, out)
	}
	began := time.Now()
	counted := make([]counts, o.processes)
	failed := make([]error, o.processes)
	var all sync.WaitGroup
	for i := range o.processes {
		all.Go(func() { counted[i], failed[i] = o.process(ctx, binary, dir, i) })
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return o.report(add(counted), time.Since(began))
}

// process runs the cases of one process.
func (o options) process(ctx context.Context, binary, dir string, i int) (c counts, err error) {
	path := filepath.Join(dir, fmt.Sprint(i))
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^TestSimulation$", "-test.v", "-test.timeout", "24h")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=400", "TXONCE_SIMULATION=make sim", "COUNTS="+path,
		"SEED="+strconv.Itoa(o.seed), "FROM="+strconv.Itoa(o.from+i), "STRIDE="+strconv.Itoa(o.processes))
	if o.cases == "" {
		cmd.Env = append(cmd.Env, "SECONDS="+strconv.Itoa(o.seconds))
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

func number(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return otherwise
	}
	return n
}
