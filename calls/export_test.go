package calls

import (
	"time"

	"github.com/txonce/txonce/dedup/driver"
)

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

// Quiet returns when Find can be asked, for each of answers of servers, by the name and the time of each.
func Quiet[TTx any](cfg Config[TTx], answers ...driver.Call) (all []time.Time) {
	var s sightings
	for _, c := range answers {
		all = append(all, s.saw(c, RulesOf(cfg)).quiet)
	}
	return all
}

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

// Late reports whether a try of ctx begins too late.
var Late = late
