// Package self lets the test binary of a command be that command.
package self

import (
	"bytes"
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

// Command returns the command with these arguments, and where its output goes. It is killed when the test ends.
func Command(t testing.TB, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, out = exec.CommandContext(t.Context(), binary, args...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), env+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}
