package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// mutation breaks one guarantee.
type mutation struct {
	name  string // the guarantee, as docs/guarantees.md shows it
	file  string // relative to the module's root
	edits []edit
	pkg   string // the package whose tests run
	run   string // -run: as few tests as needed
	fails string // the test that must fail, as go test prints it
	short bool   // -short: needs no servers
	tries int    // runs until the test must have failed; 0 means 1, more is for tests that use chance
}

// edit replaces old, which must occur exactly once in the file.
type edit struct{ old, new string }

type result struct {
	output string
	err    error
}

// try runs the test against the mutated file. Its result has an error unless the named test fails.
func (m mutation) try(ctx context.Context, cache buildCache) (r result) {
	if err := cache.build(ctx, m.pkg); err != nil {
		return result{err: err}
	}
	built := time.Now()
	defer func() {
		if err := cache.forget(built); r.err == nil && err != nil {
			r.err = fmt.Errorf("empty the build cache: %w", err)
		}
	}()
	dir, err := os.MkdirTemp("", "txonce-mutant-")
	if err != nil {
		return result{err: err}
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(dir)
	if err != nil {
		return result{err: err}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // servers that refuse to run as root must enter it
		return result{err: err}
	}
	for range max(m.tries, 1) {
		if r = m.test(ctx, cache, dir, overlay); r.err == nil {
			return r
		}
	}
	return r
}

// overlay writes the mutated file and a JSON file for go test -overlay, which replaces the original by it.
func (m mutation) overlay(dir string) (path string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	original := filepath.Join(root, m.file)
	text, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("run it from the module's root: %w", err)
	}
	mutant := string(text)
	for _, e := range m.edits {
		if n := strings.Count(mutant, e.old); n != 1 {
			return "", fmt.Errorf("%q occurs %d times in %s, want once: update the mutation", e.old, n, m.file)
		}
		mutant = strings.Replace(mutant, e.old, e.new, 1)
	}
	mutated := filepath.Join(dir, filepath.Base(m.file))
	if err := os.WriteFile(mutated, []byte(mutant), 0o600); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: mutated}})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// test runs the tests with the settings of internal/test/run.sh, but without the race detector, which no mutation needs. Temporary
// files are in dir, because a test that panics does not remove its own.
func (m mutation) test(ctx context.Context, cache buildCache, dir, overlay string) result {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := cache.command(ctx, "test", "-overlay", overlay, "-ldflags=-s", "-vet=off", "-count=1", "-parallel=4", "-timeout=9m",
		fmt.Sprint("-short=", m.short), "-run", m.run, "./"+m.pkg)
	cmd.Env = append([]string{"GOGC=400"}, cmd.Env...)
	cmd.Env = append(cmd.Env, "TMPDIR="+dir, "TXONCE_TEST_ALL=1") // the case may be dealt to another configuration than the mutation names
	out, err := cmd.CombinedOutput()
	r := result{output: string(out)}
	var failed *exec.ExitError
	switch {
	case err == nil:
		r.err = errors.New("all tests pass although the guarantee is broken")
	case !errors.As(err, &failed):
		r.err = err
	case strings.Contains(r.output, "[build failed]"), strings.Contains(r.output, "[setup failed]"):
		r.err = fmt.Errorf("the mutant does not compile:\n%s", r.output)
	case !strings.Contains(r.output, "--- FAIL: "+m.fails):
		r.err = fmt.Errorf("the tests fail, but %s does not:\n%s", m.fails, r.output)
	}
	return r
}
