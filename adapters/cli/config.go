package cli

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/migrations"
)

// Config configures New.
type Config struct {
	// Open connects to a database. It fails if the database cannot be reached. Required. It is called at most once for
	// each command. A program that always works on its own database may ignore the Target.
	Open func(ctx context.Context, t Target) (*Database, error)

	// Sources are the brokers that the commands check and audit can ask.
	//
	// Defaults to none.
	Sources []Source

	// Serve answers HTTP requests on l with a dashboard of db, until ctx ends, and closes l. hide is empty without
	// --hide-keys. actor is the value of --act-as. An empty actor means a dashboard that is read-only.
	//
	// Defaults to none: there is no command serve.
	Serve func(ctx context.Context, db *Database, hide ops.HideKeys, actor string, l net.Listener) error

	// Replayer returns the consumer of that name, which works on db, so that dead-letters replay --here carries out
	// replays in this process. It fails if the program has no such consumer. *consumer.Consumer is a Replayer. Make no
	// Subscriber with it: RunReplays would wait for its start.
	//
	// Defaults to none: there is no flag --here, and only workers carry out replays.
	Replayer func(ctx context.Context, db *Database, name string) (Replayer, error)

	// HideKeys replaces business keys, ordering keys and IDs of messages in everything that is printed, when
	// --hide-keys is given. Texts of errors, and what --payload shows, stay as they are.
	//
	// Defaults to the secret in the environment variable TXONCE_KEY_SECRET.
	HideKeys ops.HideKeys
}

// Target says which database to open.
type Target struct {
	DSN    string // of --dsn or TXONCE_DSN; may be empty
	Schema string // of --schema; empty: the default of the database
	Create bool   // the command installs tables: a file that does not exist may be created
}

// Database is an open database.
type Database struct {
	Dialect string  // as in package migrations: "postgres", "mysql" or "sqlite"
	Name    string  // for people, when they are asked; without a password; may be empty
	SQL     *sql.DB // for migrate, check, horizon, audit and import
	Store   Store
	Claims  Claimer // for import: ClaimsOf(store); nil: import refuses
	Close   func()  // called once, when the command ends; nil: nothing needs to be closed
}

// Store is what the commands need of a store. pgxstore.Store and sqlstore.Store have it.
type Store interface {
	dedup.Purger
	Operator() ops.Store
	Check(ctx context.Context) error
}

// Replayer carries out the replays of one consumer that operators request, until ctx ends. See
// consumer.Consumer.RunReplays.
type Replayer interface {
	RunReplays(ctx context.Context) error
}

// New returns the command "txonce" with all of its subcommands. Execute it with ExecuteContext, or add it to another
// command. It never ends the process, and prints errors nowhere: the caller does, and asks ExitCode for the code.
func New(cfg Config) *cobra.Command {
	if cfg.Open == nil {
		panic("cli: Config.Open is required")
	}
	a := &app{cfg: cfg}
	root := group("txonce", "Operate the claims, dead letters and outbox of txonce",
		a.migrate(), a.check(), a.status(), a.explain(), a.letters(), a.outbox(), a.actions(), a.sweep(), a.horizon(),
		a.audit(), a.plan(), a.importKeys(), a.storm())
	if cfg.Serve != nil {
		root.AddCommand(a.serve())
	}
	root.SilenceErrors, root.SilenceUsage = true, true
	flags := root.PersistentFlags()
	flags.StringVar(&a.target.DSN, "dsn", os.Getenv("TXONCE_DSN"),
		"the database: postgres://…, mysql://user@host/db, or the path of an SQLite file (default: TXONCE_DSN)")
	flags.StringVar(&a.target.Schema, "schema", "", "the schema of txonce's tables; on MySQL a database")
	flags.BoolVar(&a.json, "json", false, "print one JSON object")
	flags.DurationVar(&a.timeout, "timeout", 30*time.Second,
		"how long one request to the database or a broker may take; migrate up and down have no limit")
	flags.BoolVar(&a.hide, "hide-keys", false, "replace business keys and IDs of messages by hashes; the secret is in TXONCE_KEY_SECRET")
	flags.Lookup("dsn").DefValue = "" // it may have a password
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	return root
}

// app is one run of the command line.
type app struct {
	cfg     Config
	target  Target
	json    bool
	hide    bool
	timeout time.Duration
	keys    ops.HideKeys
}

// group is a command that only has subcommands.
func group(name, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usage(fmt.Errorf("unknown command %q for %q; %s", args[0], cmd.CommandPath(),
				commandHint(cmd, args[0])))
		}
		return nil
	}, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(subs...)
	return c
}

// commandHint names the subcommands that typed may mean, or all.
func commandHint(c *cobra.Command, typed string) string {
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(typed); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return "the commands are " + strings.Join(names, ", ")
}

// work is the function of a command that needs the database.
type work func(ctx context.Context, db *Database, out *printer, args []string) error

// command returns a command that opens the database and calls f. args says how many arguments it takes.
func (a *app) command(use, short string, args cobra.PositionalArgs, f work) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, given []string) error {
			if err := args(cmd, given); err != nil {
				return Usage(err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, given []string) error { return a.run(cmd, given, f) },
	}
}

func (a *app) run(cmd *cobra.Command, args []string, f work) error {
	if a.hide {
		if a.keys = a.secret(); len(a.keys.Secret) == 0 {
			return Usage(errors.New("--hide-keys needs a secret in TXONCE_KEY_SECRET, because short keys can be guessed from hashes without a secret"))
		}
	}
	if a.timeout <= 0 {
		return Usage(errors.New("--timeout must be positive"))
	}
	ctx := cmd.Context()
	opening, cancel := context.WithTimeout(ctx, a.timeout)
	db, err := a.cfg.Open(opening, a.target)
	cancel()
	if err != nil {
		return classify(ctx, a.timeout, err)
	}
	if db.Close != nil {
		defer db.Close()
	}
	if alone := cmd.Name() == "check" || cmd.Parent().Name() == "migrate"; !alone {
		// these look at the version themselves
		if err := a.tooNew(ctx, db); err != nil {
			return classify(ctx, a.timeout, err)
		}
	}
	out := a.printer(cmd)
	err = f(ctx, db, out, args)
	if err == nil {
		err = out.failed
	}
	return classify(ctx, a.timeout, err)
}

// tooNew refuses tables that a newer release has changed so that this program does not work with them: it would misread
// what they say.
func (a *app) tooNew(ctx context.Context, db *Database) error {
	if db.SQL == nil {
		return nil
	}
	ctx, cancel := a.limit(ctx)
	defer cancel()
	var need int
	err := db.SQL.QueryRowContext(ctx, `SELECT coalesce(max(works_with), 0) FROM `+a.table(db,
		"txonce_schema")).Scan(&need)
	if known := migrations.Latest(db.Dialect); err == nil && need > known {
		// after an error the command says what is wrong
		return fmt.Errorf("%w: the tables work with programs that know version %d or later, and this one knows %d",
			migrations.ErrNewer, need, known)
	}
	return nil
}

// table returns the name of a table of txonce.
func (a *app) table(db *Database, name string) string {
	quote := map[string]string{"postgres": `"`, "mysql": "`"}[db.Dialect]
	if a.target.Schema == "" || quote == "" {
		return name
	}
	return quote + strings.ReplaceAll(a.target.Schema, quote, quote+quote) + quote + "." + name
}

// secret returns what hides keys; without a secret it hides none.
func (a *app) secret() ops.HideKeys {
	if len(a.cfg.HideKeys.Secret) > 0 {
		return a.cfg.HideKeys
	}
	return ops.HideKeys{Secret: []byte(os.Getenv("TXONCE_KEY_SECRET"))}
}

// limit returns the context of one request.
func (a *app) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}
