// Package testdb connects a test to the real database it needs, and makes a schema for it.
//
//	dsn := testdb.Schema(t, testdb.Postgres(t))
//
// It imports no driver, because the tests of an adapter decide what the adapter's users download. For databases it
// takes the driver that the test's own package has registered with database/sql as "pgx" or "mysql". Brokers are in the
// module internal/test/brokers, with a package for each.
//
// The address of a server comes from the environment (TXONCE_POSTGRES, TXONCE_POSTGRES18, TXONCE_KAFKA, TXONCE_MARIADB,
// TXONCE_MYSQL) or from the file .services/env at the top of the checkout, which `make services-up` writes. So `go test
// ./adapters/kafka` works in an editor too. A test whose server is missing fails, because a suite that skips its tests
// proves nothing. With -short, which is for tests that need only Go, this package skips the test.
//
// Schemas have random names and are removed with the test. So packages can run concurrently, or repeatedly, on the
// same servers. Reused and its siblings return a schema that earlier tests of the process have used, emptied: tests
// with many cases cost the server a fraction with it.
package testdb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/txonce/txonce/internal/test/address"
)

// setUpWithin limits each exchange with a server for setup and cleanup.
const setUpWithin = 2 * time.Minute

// Server returns the address in the variable env. title names the server in messages.
func Server(t testing.TB, env, title string) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("needs %s; -short runs only what needs nothing but Go", title)
	}
	address, err := lookup(env)
	if err != nil {
		t.Fatal(err)
	}
	if address == "" {
		t.Fatalf("%s is not set and not in .services/env: run make services-up", env)
	}
	return address
}

// lookup returns the value of env in the environment or in .services/env; "" if neither has one.
func lookup(env string) (string, error) {
	if address := os.Getenv(env); address != "" {
		return address, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	return address.Lookup(root, env)
}

// Root walks up from the current folder, which is the test's package, to the top of the checkout, whose go.mod is the
// root module's.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/txonce/txonce\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod of txonce in %s or above", start)
		}
	}
}

// answered has the addresses that have answered this process. PostgreSQL starts a process for each connection.
var answered sync.Map

// Answers fails the test if nothing listens at the address, so that an outdated .services/env is recognized as such.
func Answers(t testing.TB, title, network, address string) {
	t.Helper()
	if _, yes := answered.Load(address); yes {
		return
	}
	conn, err := net.DialTimeout(network, address, 30*time.Second)
	if err != nil {
		t.Fatalf("%s does not answer (%v): run make services-up", title, err)
	}
	conn.Close()
	answered.Store(address, nil)
}

// RandomName returns a unique name that is valid for schemas and topics and contains the test's name.
func RandomName(t testing.TB) string {
	test := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return '_'
	}, t.Name())
	var random [6]byte
	rand.Read(random[:]) // cannot fail
	return test[:min(len(test), 40)] + "_" + hex.EncodeToString(random[:])
}

// FreePort returns a port that is not in use and that no other test on this machine gets before this one ends.
func FreePort(t testing.TB) int {
	t.Helper()
	port, release, err := reservePort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return port
}

// reservePort returns a TCP port that is not in use and that no other test on this machine gets before release is
// called. It is outside of the system's range for outgoing connections, because one of these could take it while the
// test's server is down.
func reservePort() (port int, release func(), err error) {
	for range 1000 {
		port := 23_000 + mathrand.IntN(9_000)
		release := takePort(port)
		if release == nil {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port, release, nil
		}
		release()
	}
	return 0, nil, errors.New("there is no free port")
}

// takePort reserves a TCP port by holding the UDP port of the same number, which no test's server uses. All processes
// see that, whatever their TMPDIR and user, and it ends with the process. takePort returns nil if the port is reserved
// already.
func takePort(port int) (release func()) {
	held, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil
	}
	return func() { held.Close() }
}

// CleanUpContext returns a context with a time limit that outlives the test's own context, which has ended when
// cleanups run.
func CleanUpContext(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), setUpWithin)
}
