// Command txonce operates a database of txonce: claims, dead letters, the outbox. See package adapters/cli and
// docs/operations.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/txonce/txonce/adapters/cli"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	root := cli.New(cli.Config{Open: open, Sources: sources(), Serve: serve})
	root.AddCommand(monitoringCommand())
	err := root.ExecuteContext(ctx)
	if err != nil {
		printed := map[string]bool{}
		for line := range strings.Lines(err.Error()) { // of several errors; the texts may be those of servers
			if line = cli.Harmless(line); !printed[line] {
				// pgx has one for each attempt at a host: with TLS and without
				printed[line] = true
				fmt.Fprintln(os.Stderr, "txonce:", line)
			}
		}
	}
	return cli.ExitCode(err)
}
