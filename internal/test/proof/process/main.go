// Command process writes the run of a program that kills processes, from the last line that the program prints with
// -json:
//
//	go run ./examples/quickstart -json | go run ./internal/test/proof/process -of quickstart > internal/test/proof/runs/process-quickstart.json
//	make chaos-relay | go run ./internal/test/proof/process -of relaychaos > internal/test/proof/runs/process-relaychaos.json
//	make failover | go run ./internal/test/proof/process -of failover > internal/test/proof/runs/process-failover.json
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/txonce/txonce/internal/test/proof"
)

func main() {
	of := flag.String("of", "", "the `program`: quickstart, relaychaos, failover or failover-mariadb")
	flag.Parse()
	if err := write(os.Stdin, os.Stdout, *of); err != nil {
		fmt.Fprintln(os.Stderr, "process:", err)
		os.Exit(1)
	}
}

func write(in io.Reader, out io.Writer, of string) error {
	p, known := programs[of]
	if !known {
		return fmt.Errorf("-of %q: want quickstart, relaychaos, failover or failover-mariadb", of)
	}
	last, err := lastLine(in)
	if err != nil {
		return err
	}
	figures := map[string]any{}
	if err := json.Unmarshal([]byte(last), &figures); err != nil {
		return fmt.Errorf("the last line is no JSON: %w", err)
	}
	r, err := p.run(figures)
	if err != nil {
		return err
	}
	if err := r.Check(); err != nil {
		return err
	}
	line, err := r.Line()
	if err == nil {
		_, err = out.Write(line)
	}
	return err
}

func lastLine(in io.Reader) (last string, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); strings.HasPrefix(line, "{") {
			last = line
		}
	}
	if last == "" {
		return "", errors.Join(errors.New("there is no line of JSON: use -json"), lines.Err())
	}
	return last, lines.Err()
}

// program says what a program's figures mean.
type program struct {
	name, command string
	ok            string // the figure that is true when the run is good; empty: there is none
	faults        []fault
	bad           []string // the figures that count what was lost, doubled or otherwise wrong
}

type fault struct{ figure, boundary, action string }

var programs = map[string]program{
	"quickstart": {
		name: "examples/quickstart: a worker with Kafka in memory and SQLite", command: "go run ./examples/quickstart -json",
		ok: "complete",
		faults: []fault{
			{"kills", "a worker with messages", "SIGKILL"},
			{"freezes", "a worker with messages", "SIGSTOP"},
		},
		bad: []string{"lost", "doubled", "events_missing", "events_out_of_order", "events_with_foreign_id", "auditor_lost", "auditor_doubled"},
	},
	"relaychaos": {
		name: "relays: PostgreSQL and Kafka", command: "make chaos-relay", ok: "ok",
		faults: []fault{
			{"kills", "a relay that holds shards", "SIGKILL"},
			{"pauses", "a relay that holds shards", "SIGSTOP past the lease"},
		},
		bad: []string{"missing", "phantom", "out_of_order", "altered", "pending"},
	},
	"failover":         failover("PostgreSQL", ""),
	"failover-mariadb": failover("MariaDB", ` FAILOVER="-database mariadb"`),
}

func failover(database, flags string) program {
	return program{
		name: "a database that loses commits: " + database + " and Kafka", command: "make failover" + flags, ok: "OK",
		faults: []fault{
			{"Failovers", "the database", "failover to a standby that lacks commits"},
			{"Backups", "the database", "restored from a backup"},
			{"Restarts", "the database", "restart"},
			{"Kills", "a worker", "SIGKILL"},
			{"Freezes", "a worker", "SIGSTOP past its session"},
		},
		bad: []string{"Lost", "Doubled"},
	}
}

func (p program) run(figures map[string]any) (r proof.Run, err error) {
	number := func(name string) int {
		n, ok := figures[name].(float64)
		if !ok {
			err = errors.Join(err, fmt.Errorf("the figures lack %q", name))
		}
		return int(n)
	}
	if good, isBool := figures[p.ok].(bool); p.ok != "" && (!isBool || !good) {
		return r, fmt.Errorf("%s is not true: the run has failed or was not complete", p.ok)
	}
	r = proof.Run{Tier: proof.Process, Name: p.name, Command: p.command, Date: time.Now().Format(time.DateOnly), Commit: proof.Commit()}
	for _, name := range []string{"seed", "Seed"} {
		if seed, ok := figures[name].(float64); ok {
			r.Seed = uint64(seed)
		}
	}
	if took, ok := figures["seconds"].(float64); ok {
		r.Seconds = took
	}
	for _, f := range p.faults {
		if n := number(f.figure); n > 0 {
			c := r.Cell(f.boundary, f.action)
			c.Faults, c.Cases = c.Faults+n, c.Cases+n
			r.Cases += n
		}
	}
	for _, name := range p.bad {
		r.Bad += number(name)
	}
	return r, err
}
