// Package leaktest is goleak with patience: goleak itself gives goroutines that are about to end less than a second or two,
// which is not enough for a connection to be closed on a machine that has much else to do.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

// Main runs the tests of a package, and fails when one of them leaves a goroutine behind. It is for TestMain and does not return.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := find(opts); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails t when a goroutine is left that opts do not ignore.
func None(t testing.TB, opts ...goleak.Option) {
	t.Helper()
	if err := find(opts); err != nil {
		t.Fatal(err)
	}
}

func find(opts []goleak.Option) (err error) {
	for began := time.Now(); time.Since(began) < patience; {
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
	}
	return err
}
