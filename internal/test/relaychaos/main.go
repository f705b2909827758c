//go:build unix

// Command relaychaos shows that relays keep the outbox's promise while they are killed and frozen.
//
//	make chaos-relay
//	go run ./internal/test/relaychaos -json
//
// Two relay processes share the outbox of one PostgreSQL and publish to one Kafka, both real. Handlers of a
// consumer.Consumer enqueue at a steady pace, at the end a slower one where faults are late: each execution counts up its
// key's row, which is what makes executions of one key exclude each other, notes in a ledger what it enqueues, and enqueues
// 1 to 3 messages. Now and then a handler fails after that, once or for good, by an error, a panic or a broken transaction;
// what it had enqueued must never appear.
//
// Meanwhile relays are killed with SIGKILL and frozen with SIGSTOP for longer than their lease. A fault counts only if the
// database says right before it that this very process holds shards under a lease that has not run out; a third of them
// strike where the relay likes, a third when it has leased messages and is about to publish them, a third when the broker
// has confirmed them and nobody has been told. A killed relay is started again.
//
// When everything that the ledger lists has been published and nothing is pending, or nothing has moved for too long, the
// audit reads the whole topic from Kafka and compares it with the ledger. It never asks the outbox's own tables who
// published what.
//
// # Figures
//
// With -json the last line is one JSON object. missing: messages of committed transactions that were never published.
// phantom: publications of what was rolled back, or of what nobody enqueued. out_of_order: first occurrences that stand
// behind a later one of their key, by the count in the key's row. altered: publications whose payload, headers, key or sequence
// number are not as enqueued or as the first time. repeats: publications after the first; repeats_allowed is what may be,
// one leased batch (batch messages for each of a relay's workers) for each fault. pending: what the database still holds.
//
// The exit code is 0 when every fault was applied and missing, phantom, out_of_order, altered and pending are 0 and repeats
// are allowed; 1 when not; 2 for a command line that makes no sense.
//
// -broken makes it wrong in one of four ways, to see the audit fail (broken.go).
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
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the cleaning up
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
