package cli

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"
)

func (a *app) serve() *cobra.Command {
	var listen, actor string
	var c *cobra.Command
	c = a.command("serve", "Serve the dashboard of the database to this machine only, read-only without --act-as",
		cobra.NoArgs,
		func(ctx context.Context, db *Database, out *printer, _ []string) error {
			if actor == "" && c.Flags().Changed("act-as") {
				return Usage(errors.New("--act-as is empty: name who acts, for the record"))
			}
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return Usage(fmt.Errorf("--listen: %w", err))
			}
			out.notef("the dashboard is at http://%v; interrupt to end\n", l.Addr())
			return a.cfg.Serve(ctx, db, a.keys, actor, l)
		})
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:7070", "the address to listen on")
	c.Flags().StringVar(&actor, "act-as", "", "let everybody on this machine see payloads, replay, discard and unpark; actions are recorded with this `NAME`")
	return c
}
