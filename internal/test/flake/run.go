package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

type settings struct {
	runs    int
	run     string
	short   bool
	timeout time.Duration
}

// try runs each package's tests s.runs times and prints the failures.
func (s settings) try(ctx context.Context, packages []string) (failed bool, err error) {
	if len(packages) == 0 {
		return false, errors.New("name packages, such as ./consumer")
	}
	kept, err := os.MkdirTemp("", "flake-")
	if err != nil {
		return false, err
	}
	counts := newTally()
	for _, pkg := range packages {
		if err := s.tryPackage(ctx, pkg, kept, counts); err != nil {
			return true, fmt.Errorf("%s: %w", pkg, err)
		}
	}
	counts.print(os.Stdout)
	if !counts.failed() {
		err = os.RemoveAll(kept)
	}
	return counts.failed(), err
}

func (s settings) tryPackage(ctx context.Context, pkg, kept string, counts *tally) error {
	dir, err := output(ctx, "go", "list", "-f", "{{.Dir}}", pkg)
	if err != nil {
		return err
	}
	program := filepath.Join(kept, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-")+".test")
	flags := "GOFLAGS=" + cmp.Or(os.Getenv("RACE"), "-race") // as run.sh
	if _, err := output(ctx, "env", flags, "go", "test", "-c", "-ldflags=-s", "-o", program, pkg); err != nil {
		return err
	}
	if _, err := os.Stat(program); err != nil {
		return errors.New("it has no tests")
	}
	defer os.Remove(program)
	for i := range s.runs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		began := time.Now()
		out, failure := s.once(ctx, program, strings.TrimSpace(dir))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := counts.add(pkg, out)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("no test matches -run %q", s.run)
		}
		verdict := "ok"
		if failure != nil {
			counts.missed(pkg, out)
			file := fmt.Sprintf("%s.%d.log", strings.TrimSuffix(program, ".test"), i+1)
			if err := os.WriteFile(file, plain(out), 0o600); err != nil {
				return err
			}
			verdict = "FAILED, see " + file
		}
		fmt.Fprintf(os.Stdout, "%s %d of %d: %.1f s %s\n", pkg, i+1, s.runs, time.Since(began).Seconds(), verdict)
	}
	return nil
}

// once runs program once and returns its output as events of go test -json.
func (s settings) once(ctx context.Context, program, dir string) ([]byte, error) {
	args := []string{
		"tool", "test2json", program, "-test.v=test2json", "-test.shuffle=on",
		"-test.timeout=" + s.timeout.String(), "-test.run=" + s.run,
	}
	if s.short {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE")) // as run.sh
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
