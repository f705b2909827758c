package parallel_test

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/test/parallel"
)

func TestMain(m *testing.M) {
	parallel.Tests(7)
	os.Exit(m.Run())
}

// TestTheFlagDecides runs this binary again, with the flag and without.
func TestTheFlagDecides(t *testing.T) {
	if want := os.Getenv("WANT_PARALLEL"); want != "" {
		if got := flag.Lookup("test.parallel").Value.String(); got != want {
			t.Errorf("%s tests run side by side, want %s", got, want)
		}
		return
	}
	for want, args := range map[string]string{
		"7": "-test.run=^TestTheFlagDecides$",
		"3": "-test.run=^TestTheFlagDecides$ -test.parallel=3",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), "WANT_PARALLEL="+want)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("with %s: %v\n%s", args, err, out)
		}
	}
}
