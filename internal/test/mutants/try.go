package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutated returns the path of the file that the row changes, and its new text, without what also says.
func (r row) mutated(root string) (path, text string, err error) { return r.mutatedIn(root, nil) }

func (r row) mutatedIn(root string, changed map[string]string) (path, text string, err error) {
	f, err := r.findIn(root, changed)
	if err != nil {
		return "", "", err
	}
	if r.in != "" {
		return f.path, r.wrap(f), nil
	}
	text, err = r.replaceText(f)
	return f.path, text, err
}

// files returns the new texts of all files that the row changes, by their paths.
func (r row) files(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, c := range append([]row{r}, r.also...) {
		path, text, err := c.mutatedIn(root, changed)
		if err != nil {
			return nil, err
		}
		changed[path] = text
	}
	return changed, nil
}

type result struct {
	output string
	rule   string // of a simulation: the first line of its failure
	err    error
}

// try runs the row's test against the mutated file. Its result has an error unless the test fails.
func (r row) try(ctx context.Context, root string, cache buildCache) (res result) {
	_, folder := r.test()
	module, pkg, err := moduleOf(root, folder)
	if err != nil {
		return result{err: err}
	}
	if err := cache.build(ctx, module, pkg); err != nil {
		return result{err: err}
	}
	built := time.Now()
	defer func() {
		if err := cache.forget(built); res.err == nil && err != nil {
			res.err = fmt.Errorf("empty the build cache: %w", err)
		}
	}()
	dir, err := os.MkdirTemp("", "txonce-mutant-")
	if err != nil {
		return result{err: err}
	}
	defer os.RemoveAll(dir)
	overlay, err := r.overlay(root, dir)
	if err != nil {
		return result{err: err}
	}
	if err := os.Chmod(dir, 0o755); err != nil { // servers that refuse to run as root must enter it
		return result{err: err}
	}
	return r.run(ctx, cache, module, pkg, dir, overlay)
}

// overlay writes the mutated files and a JSON file for go test -overlay, which replaces the originals by them.
func (r row) overlay(root, dir string) (path string, err error) {
	files, err := r.files(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for original, text := range files {
		mutated := filepath.Join(dir, fmt.Sprint(len(replace), filepath.Base(original)))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[original] = mutated
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// run runs the test with the settings of internal/test/run.sh, but without the race detector, which no mutation needs.
// Temporary files are in dir, because a test that panics does not remove its own.
func (r row) run(ctx context.Context, cache buildCache, module, pkg, dir, overlay string) result {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	test, _ := r.test()
	cmd := cache.command(ctx, module, "test", "-overlay", overlay, "-ldflags=-s", "-vet=off", "-count=1", "-parallel=4",
		"-timeout=9m", "-run", exactly(test), pkg)
	cmd.Env = append([]string{"GOGC=400"}, cmd.Env...)
	// Without TXONCE_TEST_ALL the case may be dealt to another configuration than the row names.
	cmd.Env = append(cmd.Env, "TMPDIR="+dir, "TXONCE_TEST_ALL=1")
	if r.simulates() {
		cmd.Env = append(cmd.Env, "GOMAXPROCS=1", fmt.Sprint("CASES=", r.sim), fmt.Sprint("SEED=", max(r.seed, 1)))
	}
	out, err := cmd.CombinedOutput()
	res := result{output: string(out)}
	var failed *exec.ExitError
	switch {
	case err == nil && strings.Contains(res.output, "[no tests to run]"):
		res.err = errors.New("no test has this name")
	case err == nil:
		res.err = errors.New("the test passes although the promise is broken")
	case !errors.As(err, &failed):
		res.err = err
	case strings.Contains(res.output, "[build failed]"), strings.Contains(res.output, "[setup failed]"):
		res.err = fmt.Errorf("the mutant does not compile:\n%s", res.output)
	case !strings.Contains(res.output, "--- FAIL: "+test):
		res.err = fmt.Errorf("tests fail, but %s does not:\n%s", test, res.output)
	case r.simulates():
		res.rule, res.err = r.brokenRule(res.output)
	}
	return res
}

// exactly returns a pattern for go test -run that matches only the test of that name.
func exactly(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// moduleOf returns the folder of the module that a folder of the checkout belongs to, and the folder's path within it.
func moduleOf(root, folder string) (module, pkg string, err error) {
	for module = filepath.Join(root, folder); ; module = filepath.Dir(module) {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			break
		} else if module == root {
			return "", "", fmt.Errorf("%s belongs to no module", folder)
		}
	}
	pkg, err = filepath.Rel(module, filepath.Join(root, folder))
	return module, "./" + filepath.ToSlash(pkg), err
}
