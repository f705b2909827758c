// Package testdb gives a test the real server it needs, and a place of its own on it.
//
//	dsn := testdb.Schema(t, testdb.Postgres(t))
//	brokers := testdb.Kafka(t)
//	topic := testdb.Topic(t, brokers, 3)
//
// Where a server is stands in the environment (TXONCE_POSTGRES, TXONCE_POSTGRES18, TXONCE_KAFKA, TXONCE_MYSQL) or else in the file
// .services/env at the top of the checkout, which `make services-up` writes; so `go test ./adapters/kafka` works in an
// editor too. A test whose server is missing fails: a suite that passes because it ran nothing proves nothing. Only
// -short, which asks for what needs nothing but Go, skips it, and does so here, so that no test has to say it.
//
// Schemas and topics have random names and go away with the test. Packages therefore run side by side on one set of
// servers, and twice in a row.
package testdb

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
)

// setUpWithin bounds each exchange with a server that is not the test's own doing.
const setUpWithin = 2 * time.Minute

// server returns the address in the variable env, which holds title's address.
func server(t testing.TB, env, title string) string {
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

// lookup returns what the environment, or else .services/env, says env is; "" when neither does.
func lookup(env string) (string, error) {
	if address := os.Getenv(env); address != "" {
		return address, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	f, err := os.Open(filepath.Join(root, ".services", "env"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), "="); name == env {
			return unquoted(value), nil
		}
	}
	return "", lines.Err()
}

// unquoted takes off what protects a value in .services/env from shells that read it.
func unquoted(value string) string {
	if inner, quoted := strings.CutPrefix(value, "'"); quoted {
		return strings.ReplaceAll(strings.TrimSuffix(inner, "'"), `'\''`, "'")
	}
	return value
}

// moduleRoot walks up from where the test runs, its package's folder, to the one with this module's go.mod. Modules nested
// in the checkout, such as migrations/interop, use the same servers.
func moduleRoot() (string, error) {
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

// answers fails the test when nothing listens: a stale .services/env should read as such, not as a driver's error.
func answers(t testing.TB, title, network, address string) {
	t.Helper()
	conn, err := net.DialTimeout(network, address, 30*time.Second)
	if err != nil {
		t.Fatalf("%s does not answer (%v): run make services-up", title, err)
	}
	conn.Close()
}

// randomName returns a name that is valid for a schema and a topic, unique, and says which test it belongs to.
func randomName(t testing.TB) string {
	test := strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return unicode.ToLower(r)
		}
		return '_'
	}, t.Name())
	var random [6]byte
	rand.Read(random[:]) // never fails
	return test[:min(len(test), 40)] + "_" + hex.EncodeToString(random[:])
}

// freePort returns a port on which nothing listens, and which no other test of this user is given before this one ends. It is not one
// of those that the system gives to whoever connects somewhere, which could take it before the test's server is up, or while that is down.
func freePort(t testing.TB) int {
	t.Helper()
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("txonce-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		port := 23_000 + mathrand.IntN(9_000)
		release := takePort(dir, port)
		if release == nil {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			t.Cleanup(release)
			return port
		}
		release()
	}
	t.Fatal("there is no free port")
	return 0
}

// takePort locks a port's file, which says that it is given. The lock goes with the process, however that ends. nil: somebody else has it.
func takePort(dir string, port int) (release func()) {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil
	}
	return func() { f.Close() }
}

// cleanUpContext is bounded, and lives on when the test's own context has ended, as it has in a cleanup.
func cleanUpContext(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), setUpWithin)
}
