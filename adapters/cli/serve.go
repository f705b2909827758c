package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/spf13/cobra"
)

func (a *app) serve() *cobra.Command {
	var listen string
	c := a.command("serve", "Serve the dashboard of the database, read-only and to this machine only", cobra.NoArgs,
		func(ctx context.Context, db *Database, out *printer, _ []string) error {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return usage(fmt.Errorf("--listen: %w", err))
			}
			out.notef("the dashboard is at http://%v; interrupt to end\n", l.Addr())
			return a.cfg.Serve(ctx, db, a.keys, l)
		})
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:7070", "the address to listen on")
	return c
}
