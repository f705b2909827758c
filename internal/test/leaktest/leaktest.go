// Package leaktest runs goleak with a longer wait. goleak gives goroutines that are about to end at most two seconds,
// which is too short for closing a connection on a busy machine.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/txonce/txonce/internal/test/atend"
)

const patience = time.Minute

// Main runs the tests of a package and fails if they leave a goroutine behind. Call it in TestMain. It does not return.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	atend.Run()
	if code == 0 {
		if err := find(opts); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// idleSession is the goroutine that an idle session of a pool has if pgx took more than 15 ms to send its last statement.
// It ends with the next statement of the session.
const idleSession = "github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"

// None fails t if a goroutine is left that opts do not ignore. Pools may be open.
func None(t testing.TB, opts ...goleak.Option) {
	t.Helper()
	if err := find(append(opts, goleak.IgnoreAnyFunction(idleSession))); err != nil {
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
