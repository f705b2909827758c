// Package command builds and runs the commands of examples that are shown before and after a change.
package command

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Build builds the command in a folder or package, and returns the path of the program.
func Build(t *testing.T, folder string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "command")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, folder).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", folder, err, out)
	}
	return binary
}

// RunUntil builds the command in folder, runs it with these variables until done reports true, and interrupts it.
func RunUntil(t *testing.T, folder string, env []string, done func(ctx context.Context) (bool, error)) {
	t.Helper()
	binary := Build(t, folder)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, binary)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		is, err := done(ctx)
		if err != nil {
			t.Errorf("%v; the command printed:\n%s", errors.Join(err, cmd.Process.Kill(), <-ended), out.String())
			return
		}
		if is {
			break
		}
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("%s ended by itself: %v\n%s", folder, err, out.String())
		}
	}
	if err := errors.Join(cmd.Process.Signal(os.Interrupt), <-ended); err != nil {
		t.Errorf("%s: %v\n%s", folder, err, out.String())
	}
}
