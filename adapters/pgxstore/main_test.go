package pgxstore_test

import (
	"flag"
	"os"
	"runtime"
	"testing"
)

// TestMain runs four tests side by side, where there are fewer processors and -parallel does not say: they wait for the disk and
// for leases more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said && runtime.GOMAXPROCS(0) < 4 {
		_ = flag.Set("test.parallel", "4")
	}
	os.Exit(m.Run())
}
