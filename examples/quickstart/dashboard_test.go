package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The dashboard shows the run, goes on after it, and ends with Ctrl-C.
func TestDashboard(t *testing.T) {
	cmd, _ := command(t, "-messages", "100", "-dashboard", "127.0.0.1:0")
	out := startDemo(t, cmd)
	out.await(t, "the dashboard goes on until Ctrl-C")
	address := regexp.MustCompile(`the dashboard is at (http://\S+)`).FindStringSubmatch(out.String())
	if address == nil {
		t.Fatalf("no address:\n%s", out)
	}
	response, err := http.Get(address[1])
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), "billing") {
		t.Errorf("%s, %v:\n%s", response.Status, err, body)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, out)
	}
}

// A run that fails says why at once, although the dashboard could go on.
func TestDashboardOfAFailedRun(t *testing.T) {
	cmd, _ := command(t, "-messages", "100", "-dashboard", "127.0.0.1:0", "-telemetry", "127.0.0.1:1:1")
	out := startDemo(t, cmd)
	out.await(t, "quickstart: -telemetry")
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit code 1:\n%s", err, out)
	}
}
