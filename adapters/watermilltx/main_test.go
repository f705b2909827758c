package watermilltx_test

import (
	"flag"
	"os"
	"testing"
)

// The examples are here for go doc. They run in the module internal/test/system, which has drivers.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.skip", "^Example"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
