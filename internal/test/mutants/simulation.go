package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// bySimulation returns those of rows that the simulation must notice, each with the simulation as its test.
func bySimulation(rows []row) (sims []row) {
	for _, r := range rows {
		if r.sim == 0 {
			continue
		}
		if !r.simulates() {
			r.fails = simulated
		}
		sims = append(sims, r)
	}
	return sims
}

// measure prints, for each of rows, the first case that fails with each of so many seeds, and what sim should be. It
// returns the exit code: 1 if a row is not noticed within most cases.
func measure(ctx context.Context, rows []row, seeds, most int) (code int) {
	root, err := os.Getwd()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		return 1
	}
	for _, r := range rows {
		firsts, rules, err := r.firstCases(ctx, root, seeds, most)
		sum := 0
		for _, n := range firsts {
			sum += n
		}
		fmt.Fprintf(os.Stdout, "%s\n    first case that fails: %v; 5 times the mean: %d; sim is %d\n", r.promise, firsts,
			5*sum/max(1, len(firsts)), r.sim)
		for _, rule := range rules {
			fmt.Fprintln(os.Stdout, "    by:", rule)
		}
		if err != nil {
			fmt.Fprintln(os.Stdout, "   ", err)
			code = 1
		}
	}
	return code
}

// firstLine finds what a simulation prints first when a case fails.
var firstLine = regexp.MustCompile(`_test\.go:\d+: (.*)\n\s*SEED=`)

// brokenRule returns the rule by which the simulation has failed that printed output. It fails if the row wants another
// one, or if no case has failed.
func (r row) brokenRule(output string) (rule string, err error) {
	found := firstLine.FindStringSubmatch(output)
	if found == nil {
		return "", fmt.Errorf("the simulation fails, but no case of it:\n%.2000s", output)
	}
	rule = found[1]
	matches, err := regexp.MatchString(r.rule, rule)
	if err == nil && !matches {
		err = fmt.Errorf("the simulation fails by another rule than %q: %s", r.rule, rule)
	}
	return rule, err
}

// failedCase finds the number of the case in what a simulation prints when it fails.
var failedCase = regexp.MustCompile(`SEED=\d+ FROM=(\d+) CASES=1`)

// firstCases builds the simulation with the row's change, and returns how many cases each seed takes to fail, and by
// which rule.
func (r row) firstCases(ctx context.Context, root string, seeds, most int) (firsts []int, rules []string, err error) {
	dir, err := os.MkdirTemp("", "txonce-mutant-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := r.overlay(root, dir)
	if err != nil {
		return nil, nil, err
	}
	test, folder := r.test()
	binary := filepath.Join(dir, "simulation.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-vet=off", "-ldflags=-s", "-o", binary,
		"./"+folder)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("the mutant does not compile: %w\n%s", err, out)
	}
	for seed := 1; seed <= seeds; seed++ {
		cmd := exec.CommandContext(ctx, binary, "-test.run", exactly(test), "-test.timeout", "60m")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1", fmt.Sprint("CASES=", most), fmt.Sprint("SEED=", seed))
		out, _ := cmd.CombinedOutput()
		found := failedCase.FindSubmatch(out)
		if found == nil {
			return firsts, rules, fmt.Errorf("seed %d has not noticed it within %d cases, or has failed otherwise:\n%.500s",
				seed, most, out)
		}
		n, err := strconv.Atoi(string(found[1]))
		if err != nil {
			return firsts, rules, err
		}
		firsts = append(firsts, n+1)
		rule, err := r.brokenRule(string(out))
		rules = append(rules, rule)
		if err != nil {
			return firsts, rules, err
		}
	}
	return firsts, rules, nil
}
