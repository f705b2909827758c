package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/migrations"
)

func (a *app) migrate() *cobra.Command {
	return group("migrate", "Install, show and remove the tables", a.migrateUp(), a.migrateDown(), a.migrateStatus(),
		a.migrateDump())
}

func (a *app) migrateUp() *cobra.Command {
	var to int
	var dry bool
	c := a.command("up", "Install the tables that are missing", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		latest := migrations.Latest(db.Dialect)
		if to < 0 {
			to = latest
		}
		if to < 1 || to > latest {
			return Usage(fmt.Errorf("--to %d: want 1 to %d", to, latest))
		}
		return a.move(ctx, db, out, to, dry, func(ctx context.Context) error {
			if to == latest {
				return migrations.Apply(ctx, db.SQL, db.Dialect, a.target.Schema) // it refuses a newer database
			}
			return migrations.ApplyTo(ctx, db.SQL, db.Dialect, a.target.Schema, to)
		})
	})
	c.Flags().IntVar(&to, "to", -1, "the number of the last migration to install (default: the latest)")
	c.Flags().Lookup("to").DefValue = "0" // help does not show it
	c.Flags().BoolVar(&dry, "dry-run", false, "print the statements, and run none")
	c.PreRun = func(*cobra.Command, []string) { a.target.Create = !dry }
	return c
}

func (a *app) migrateDown() *cobra.Command {
	var to int
	var dry, yes bool
	c := a.command("down", "Remove tables with everything that is in them", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		if to < 0 || to > migrations.Latest(db.Dialect) {
			return Usage(fmt.Errorf("--to %d: want 0 to %d", to, migrations.Latest(db.Dialect)))
		}
		if !dry {
			where := ""
			if db.Name != "" {
				where = " of " + Harmless(db.Name)
			}
			question := fmt.Sprintf("This drops tables%s: claims, dead letters and messages of the outbox that are in them are lost.\nType %q to go on: ", where, "drop")
			if err := out.confirm(ctx, question, "drop", yes); err != nil {
				return err
			}
		}
		return a.move(ctx, db, out, to, dry, func(ctx context.Context) error {
			return migrations.Revert(ctx, db.SQL, db.Dialect, a.target.Schema, to)
		})
	})
	c.Flags().IntVar(&to, "to", 0, "the number of the last migration to keep (required); 0 removes everything")
	c.Flags().BoolVar(&dry, "dry-run", false, "print the statements, and run none")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	if err := c.MarkFlagRequired("to"); err != nil {
		panic(err) // the flag is defined above
	}
	return c
}

type migrated struct {
	version
	From   int      `json:"from"`
	To     int      `json:"to"`
	DryRun bool     `json:"dry_run"`
	Files  []string `json:"files"`
}

// move goes to number to with do, and prints what was done.
func (a *app) move(ctx context.Context, db *Database, out *printer, to int, dry bool,
	do func(ctx context.Context) error,
) error {
	reading, cancel := ctx, context.CancelFunc(func() {})
	if dry {
		reading, cancel = a.limit(ctx)
	}
	from, err := migrations.Installed(reading, db.SQL, db.Dialect, a.target.Schema)
	cancel()
	if err != nil {
		return err
	}
	all, err := migrations.Steps(db.Dialect)
	if err != nil {
		return err
	}
	r := migrated{version: v1(), From: from, To: to, DryRun: dry, Files: []string{}}
	var text string
	for n := from; n < to; n++ {
		r.Files, text = append(r.Files, all[n].Name+".up.sql"), text+all[n].Up+"\n"
	}
	for n := min(from, len(all)); n > to && from > to; n-- {
		r.Files, text = append(r.Files, all[n-1].Name+".down.sql"), text+all[n-1].Down+"\n"
	}
	if !dry {
		if err := do(ctx); err != nil {
			return err
		}
		if r.To, err = migrations.Installed(ctx, db.SQL, db.Dialect, a.target.Schema); err != nil {
			return err
		}
	}
	return out.object(r, func() {
		switch {
		case dry:
			out.printf("%s", text)
		case len(r.Files) == 0:
			out.printf("nothing to do: the database is at version %d\n", r.To)
		default:
			out.printf("the database is at version %d, before at %d\n", r.To, r.From)
		}
	})
}

func (a *app) migrateStatus() *cobra.Command {
	return a.command("status", "Show which tables are installed", cobra.NoArgs, func(ctx context.Context, db *Database, out *printer, _ []string) error {
		ctx, cancel := a.limit(ctx)
		defer cancel()
		installed, err := migrations.Installed(ctx, db.SQL, db.Dialect, a.target.Schema)
		if err != nil {
			return err
		}
		type file struct {
			Name      string `json:"name"`
			Installed bool   `json:"installed"`
		}
		type status struct {
			version
			Installed int    `json:"installed"`
			Latest    int    `json:"latest"`
			Files     []file `json:"files"`
		}
		s := status{version: v1(), Installed: installed, Latest: migrations.Latest(db.Dialect)}
		all, err := migrations.Steps(db.Dialect)
		if err != nil {
			return err
		}
		for i, step := range all {
			s.Files = append(s.Files, file{step.Name, i < installed})
		}
		if err := out.object(s, func() {
			for _, f := range s.Files {
				out.printf("%-28s %s\n", f.Name, map[bool]string{true: "installed", false: "missing"}[f.Installed])
			}
			if installed > s.Latest {
				out.printf("the database is at version %d, newer than this program, which knows %d\n", installed,
					s.Latest)
			}
		}); err != nil {
			return err
		}
		if installed < s.Latest {
			return finding("the database is at version %d of %d: run txonce migrate up", installed, s.Latest)
		}
		return nil
	})
}

func (a *app) migrateDump() *cobra.Command {
	var dialect string
	var down bool
	c := &cobra.Command{Use: "dump", Short: "Print the statements, without a database", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		all, err := migrations.Steps(dialect)
		if err != nil {
			return Usage(errors.New("--dialect: want postgres, mysql or sqlite"))
		}
		out := a.printer(cmd)
		type dump struct {
			version
			Files []migrations.Step `json:"files"`
		}
		return out.object(dump{v1(), all}, func() {
			for i := range all {
				if down {
					out.printf("%s\n", all[len(all)-1-i].Down)
				} else {
					out.printf("%s\n", all[i].Up)
				}
			}
		})
	}}
	c.Flags().StringVar(&dialect, "dialect", "postgres", "postgres, mysql (also MariaDB) or sqlite")
	c.Flags().BoolVar(&down, "down", false, "print the statements that remove the tables")
	return c
}
