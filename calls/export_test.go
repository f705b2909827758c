package calls

import "time"

// Names of steps, as the table of the package comment has them.
var (
	Decide = decide
	Steps  = map[step]string{
		already: "done already", mismatch: "refuse", record: "Done", do: "Do", doOnly: "Do, only try", ask: "Find",
		wait: "wait", inDoubt: "in doubt",
	}
)

// Database is what a process knows of the database.
type Database = database

// After returns a Database that has replaced another one, whose requests have ended at quiet.
func After(quiet time.Time) Database { return Database{quiet: quiet} }

// RulesOf returns what a Config decides by.
func RulesOf[TTx any](cfg Config[TTx]) rules {
	cfg, err := cfg.complete()
	if err != nil {
		panic(err)
	}
	return cfg.rules()
}
