package calls

// Names of steps, as the table of the package comment has them.
var (
	Decide = decide
	Steps  = map[step]string{
		already: "done already", mismatch: "refuse", record: "Done", do: "Do", doOnly: "Do, only try", ask: "Find",
		wait: "wait", inDoubt: "in doubt",
	}
)

// RulesOf returns what a Config decides by.
func RulesOf[TTx any](cfg Config[TTx]) rules {
	cfg, err := cfg.complete()
	if err != nil {
		panic(err)
	}
	return cfg.rules()
}
