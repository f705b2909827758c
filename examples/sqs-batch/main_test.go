package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/txonce/txonce/internal/test/brokers/testsqs"
	"github.com/txonce/txonce/internal/test/self"
)

func TestMain(m *testing.M) { self.Main(m, main) }

func command(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	return self.Recorded(t, append([]string{"-endpoint", *testsqs.Server(t).Options().BaseEndpoint}, args...)...)
}

// Every order is sent twice and charged once, and then the command ends.
func TestChargesOnce(t *testing.T) {
	cmd, out := command(t, "-orders", "300")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "600 messages handled: 300 charges of 300 orders"; !strings.Contains(out.String(), want) {
		t.Errorf("it says\n%s\nwant %s", out, want)
	}
}

// Ctrl-C while it works ends it without an error. If all orders were done before the signal, the test tries again with
// more.
func TestInterrupt(t *testing.T) {
	for orders := 5000; !interrupted(t, orders); orders *= 2 {
		t.Logf("%d orders were done before the signal", orders)
	}
}

func interrupted(t *testing.T, orders int) (inTime bool) {
	t.Helper()
	cmd, out := command(t, "-orders", fmt.Sprint(orders))
	sent := &watched{Writer: out, text: "messages sent", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = sent, sent
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-sent.seen:
	case err := <-ended:
		t.Fatalf("it ends before all is sent: %v\n%s", err, out)
	}
	signalled := cmd.Process.Signal(syscall.SIGINT)
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if said := regexp.MustCompile(`(\d+) charges of (\d+) orders`).FindStringSubmatch(out.String()); said == nil ||
		said[1] != said[2] {
		t.Errorf("it says\n%s\nwant as many charges as orders", out)
	}
	if signalled != nil && !errors.Is(signalled, os.ErrProcessDone) {
		t.Error(signalled)
	}
	return !errors.Is(signalled, os.ErrProcessDone)
}

// watched closes seen once text has been written.
type watched struct {
	io.Writer
	text    string
	written string
	seen    chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	before := strings.Contains(w.written, w.text)
	w.written += string(p)
	if !before && strings.Contains(w.written, w.text) {
		close(w.seen)
	}
	return w.Writer.Write(p)
}
