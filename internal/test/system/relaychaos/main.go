//go:build unix

// Command relaychaos checks that relays keep the outbox's promise while they are killed and frozen.
//
//	make chaos-relay
//	go run ./internal/test/system/relaychaos -json
//
// Two relay processes share the outbox of a real PostgreSQL and publish to a real Kafka. Handlers of a
// consumer.Consumer enqueue at a steady pace, and more slowly at the end if faults are late. Each execution increments
// the row of its key, so that executions with the same key exclude each other, records in a ledger what it enqueues,
// and enqueues 1 to 3 messages. Some handlers then fail, once or always, by an error, a panic or an aborted
// transaction; what these enqueued must never be published.
//
// Meanwhile relays are killed with SIGKILL and frozen with SIGSTOP for longer than their lease. A fault counts only if
// the database shows right before it that this process holds shards under a valid lease. A third of the faults happen
// at any time, a third when the relay has leased messages and is about to publish them, and a third when the broker has
// confirmed them and the relay does not know yet. A killed relay is started again.
//
// When everything in the ledger is published and nothing is pending, or nothing changes any more, the audit reads the
// whole topic from Kafka and compares it with the ledger. It never reads the outbox's own tables.
//
// # Figures
//
// With -json the last line is one JSON object:
//
//   - missing counts messages of committed transactions that were never published.
//   - phantom counts publications of messages that were rolled back or never enqueued.
//   - out_of_order counts first publications after a later message of the same key, by the count in the key's row.
//   - altered counts publications with another payload, header, key or sequence number than enqueued or first
//     published.
//   - repeats counts publications after the first. repeats_allowed is their limit: one leased batch (batch messages for
//     each of a relay's workers) per fault.
//   - pending counts the messages that are left in the database.
//
// The exit code is 0 if every fault was applied, missing, phantom, out_of_order, altered and pending are 0, and the
// repeats are within their limit. It is 1 if not, and 2 if the command line is wrong.
//
// -broken selects one of four faulty programs, to see the audit fail (broken.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == relayCommand {
		os.Exit(relayMain())
	}
	os.Exit(chaos(os.Args[1:], os.Stdout, os.Stderr))
}

// chaos is the command, from its arguments to its exit code.
func chaos(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "relaychaos:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process without cleaning up
	found, err := run(ctx, o, newProgress(stderr))
	if err != nil {
		fmt.Fprintln(stderr, "relaychaos:", err)
	}
	if found != nil {
		fmt.Fprint(stdout, found.table())
		if o.json {
			fmt.Fprintln(stdout, found.line())
		}
	}
	if err != nil || !found.OK {
		return 1
	}
	return 0
}
