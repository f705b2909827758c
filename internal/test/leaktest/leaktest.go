// Package leaktest runs goleak with a longer wait. goleak gives goroutines that are about to end at most two seconds, which is
// too short for closing a connection on a busy machine.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

var atEnd []func()

// AtEnd makes Main call f before it looks for goroutines. Call it in an init function, where a helper keeps something for all tests.
func AtEnd(f func()) { atEnd = append(atEnd, f) }

// Main runs the tests of a package and fails if they leave a goroutine behind. Call it in TestMain. It does not return.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	if code == 0 {
		if err := find(opts); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// None fails t if a goroutine is left that opts do not ignore.
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
