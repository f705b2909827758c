package sqlstore_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// TestMain lets more tests run side by side than there are processors: they wait for disks and locks.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("4")
	}
	registerSQLiteCancel() // before any connection is opened
	os.Exit(m.Run())
}
