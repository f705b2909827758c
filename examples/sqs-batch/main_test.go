package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/testdb"
)

// TestMain lets this binary be the command that it tests.
func TestMain(m *testing.M) {
	if os.Getenv("SQS_BATCH_IS_COMMAND") != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"-endpoint", *testdb.SQS(t).Options().BaseEndpoint}, args...)
	cmd, out = exec.CommandContext(t.Context(), self, args...), &bytes.Buffer{}
	cmd.Env = append(os.Environ(), "SQS_BATCH_IS_COMMAND=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// It ends by itself when every order, sent twice, is charged once.
func TestChargesOnce(t *testing.T) {
	cmd, out := command(t, "-orders", "300")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "600 messages handled: 300 charges of 300 orders"; !strings.Contains(out.String(), want) {
		t.Errorf("it says\n%s\nwant %s", out, want)
	}
}

// Ctrl-C ends it well, at whatever point.
func TestInterrupt(t *testing.T) {
	cmd, out := command(t, "-orders", "20000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * time.Second)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // an error if it was still sending
	if said := regexp.MustCompile(`(\d+) charges of (\d+) orders`).FindStringSubmatch(out.String()); said != nil && said[1] != said[2] {
		t.Errorf("charged twice:\n%s", out)
	}
	if strings.Contains(out.String(), "panic") {
		t.Errorf("it says\n%s", out)
	}
}
