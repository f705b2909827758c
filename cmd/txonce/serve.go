package main

import (
	"context"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/adapters/cli"
	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/adapters/telemetry/monitoring"
	"github.com/txonce/txonce/consumer/ops"
)

// serve implements cli.Config.Serve.
func serve(ctx context.Context, db *cli.Database, hide ops.HideKeys, actor string, l net.Listener) error {
	cfg := dashboard.Config{Store: db.Store.Operator(), Authorize: dashboard.Loopback, HideKeys: hide}
	if actor != "" {
		cfg.Authorize = func(r *http.Request, _ dashboard.Permission) (string, error) {
			_, err := dashboard.Loopback(r, dashboard.View)
			return actor, err
		}
	}
	if s, ok := db.Store.(interface{ Activity() ops.ActivityKeeper }); ok {
		cfg.Activity = s.Activity()
	}
	d, err := dashboard.New(cfg)
	if err != nil {
		l.Close()
		return err
	}
	return dashboard.Serve(ctx, l, d)
}

// monitoringCommand prints the files of package monitoring, to save them where Prometheus and Grafana find them.
func monitoringCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "monitoring", Short: "Print alert rules for Prometheus, their unit tests, and a dashboard for Grafana",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, file := range []struct {
		name, short string
		text        []byte
	}{
		{"rules", "Print the alert rules for Prometheus", monitoring.Rules()},
		{
			"rules-test", "Print the unit tests of the rules, for promtool test rules; it expects the rules in rules.yml",
			monitoring.RulesTest(),
		},
		{"dashboard", "Print a dashboard for Grafana, as JSON", monitoring.Dashboard()},
	} {
		c.AddCommand(&cobra.Command{Use: file.name, Short: file.short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(file.text)
			return err
		}})
	}
	return c
}
