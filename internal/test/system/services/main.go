//go:build unix

// Command services starts and stops the real servers for tests. `make services-up` and `make services-down` run it.
//
//	go run ./internal/test/system/services up [name…]
//	go run ./internal/test/system/services down [name…]
//	go run ./internal/test/system/services memory
//	go run ./internal/test/system/services programs [debezium]
//
// For each server, up uses the first of these that works:
//
//  1. If something healthy already answers at its address, up uses that and never stops it.
//  2. A Docker daemon answers: docker compose, with the images pinned in compose.yaml.
//  3. Natively: programs found on this machine or installed with apt-get, jars fetched with Maven.
//
// programs installs all programs that `make test` needs, or names them with the command that installs them: a compiler,
// a browser, and the servers that single tests start and kill, which are needed also when up finds servers that answer.
//
// MySQL cannot be had on every machine. Without it up says so and continues, unless TXONCE_TEST_ALL is set or no other
// server was named.
//
// Without names, up also unpacks the programs of Prometheus, which it does not start.
//
// Servers keep their data in memory where there is room (memory.go), and otherwise in .services. The command memory
// prints the folder in memory, or nothing: run.sh keeps the tests' temporary files there.
//
// A checkout keeps its records about its servers in its folder .services: a folder per server (log, how it was started)
// and the file env, whose lines (TXONCE_KAFKA=127.0.0.1:21492) internal/test/testdb reads. The ports are the same in
// every checkout, so a second checkout uses the servers of the first. A natively started server is the child of a small
// process (keep.go) that stops it on services-down and when its checkout is deleted.
//
// To add a server, add a file that implements [server], a line in known, and an entry in compose.yaml.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// known is every server that this program can start, in the order of its output.
var known = []server{
	postgres{name: "postgres", env: "TXONCE_POSTGRES", major: 15, port: 21415},
	postgres{name: "postgres18", env: "TXONCE_POSTGRES18", major: 18, port: 21418},
	pgbouncer{port: 21432},
	kafka{port: 21492, controllerPort: 21493},
	mariadb{port: 21406},
	mysql{port: 21407},
	rabbitmq{port: 21472, dist: 21473, epmd: 21474},
	elasticmq{port: 21424},
	redis{port: 21479},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 2 && args[0] == "keep" { // started by up, not by users
		return keep(args[1])
	}
	if len(args) == 1 && args[0] == "memory" {
		fmt.Println(memory())
		return nil
	}
	if len(args) > 0 && args[0] == "programs" {
		var more []need
		if slices.Contains(args[1:], "debezium") {
			more = debezium
		}
		return programs(ctx, more)
	}
	if len(args) == 0 || (args[0] != "up" && args[0] != "down") {
		return errors.New("usage: services up|down [name…], services memory, or services programs [debezium]")
	}
	chosen, err := choose(args[1:])
	if err != nil {
		return err
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run me at the top of the checkout, where go.mod is")
	}

	// Only one up or down runs at a time on this machine, so that two checkouts cannot both find a port free.
	unlock, err := lockMachine(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if args[0] == "up" {
		if err := up(ctx, chosen); err != nil || len(args) > 1 {
			return err
		}
		return unpackPrometheus(ctx)
	}
	return down(ctx, chosen)
}

// choose returns the servers with these names; no names means all.
func choose(names []string) ([]server, error) {
	if len(names) == 0 {
		return known, nil
	}
	var chosen []server
	for _, name := range names {
		i := slices.IndexFunc(known, func(s server) bool { return s.About().Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no service %q; there are: %s", name, strings.Join(namesOf(known), " "))
		}
		chosen = append(chosen, known[i])
	}
	return chosen, nil
}

func namesOf(servers []server) []string {
	var names []string
	for _, s := range servers {
		names = append(names, s.About().Name)
	}
	return names
}

// seconds formats a duration in seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
