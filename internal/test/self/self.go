// Package self lets the test binary of a command be that command.
package self

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
)

// env makes the binary the command. The command's own child processes inherit it.
const env = "TXONCE_TEST_COMMAND"

// Main is the TestMain of a command whose function main is command.
func Main(m *testing.M, command func()) {
	if os.Getenv(env) != "" {
		command()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Command returns the command with these arguments. It is killed when ctx ends.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	binary, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// Recorded returns a Command of a test, and the buffer for its output. Read it when the command has ended.
func Recorded(t testing.TB, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	cmd, out = Command(t.Context(), args...), &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}
