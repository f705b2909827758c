package main

// scripted is a mutation that a script of cmd/txonce must notice on SQLite.
func scripted(name, file, script string, edits ...edit) mutation {
	return mutation{
		name: name, file: file, edits: edits, pkg: "cmd/txonce", run: "TestScripts$/^sqlite$/^" + script + "$", fails: "TestScripts/sqlite/" + script, short: true,
	}
}

// auditing is a mutation that a test of consumer/ops/audit must notice on SQLite.
func auditing(name, file, test string, edits ...edit) mutation {
	return mutation{
		name: name, file: "consumer/ops/audit/" + file, edits: edits, pkg: "consumer/ops/audit", run: "^" + test + "$/^sqlite$", fails: test + "/sqlite", short: true,
	}
}

// printing is a mutation that a test of adapters/cli must notice.
func printing(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/cli/" + file, edits: edits, pkg: "adapters/cli", run: exactly(test), fails: test, short: true}
}

var cliMutations = []mutation{
	printing("the command line changes nothing without a confirmation", "confirm.go", "TestConfirm", edit{`	if yes {`, `	if yes || p.asks {`}),
	printing("a script that is no terminal is refused without --yes", "confirm.go", "TestConfirm", edit{`	if !p.asks {`, `	if p.json {`}),
	printing("text of messages cannot control a terminal", "print.go", "TestTextIsHarmless", edit{`case !unicode.IsPrint(r):`, `case !unicode.IsPrint(r) && r == 0:`}),
	printing("an interrupted command exits with 5", "exit.go", "TestExitCodes", edit{`		code = ExitInterrupted`, `		code = ExitFine`}),
	scripted("--yes needs --expect", "adapters/cli/letters_act.go", "usage", edit{`case f.yes && f.expect < 0:`, `case f.yes && f.expect < -9:`}),
	scripted("--hide-keys hides keys", "adapters/cli/print.go", "explain", edit{`return p.keys.Key(key)`, `return key`}),
	scripted("a command that reads creates no database", "cmd/txonce/open.go", "usage", edit{`err != nil && !t.Create {`, `err != nil && t.Schema != "" {`}),
	scripted("the horizon is not set where stores do not look for it", "adapters/cli/horizon.go", "horizon", edit{`to.After(latest)`, `to.Year() > 9000`}),
	scripted("a discard in parts stops at an unexpected number", "adapters/cli/outbox.go", "outbox", edit{
		`if act.expect >= 0 && matching != act.expect {`, `if act.expect >= 0 && matching < act.expect {`,
	}),
	scripted("a hidden key is found by its hash", "adapters/cli/explain_find.go", "explain", edit{`hide.Key(k.ID) == digits`, `hide.Key(k.Consumer) == digits`}),
	scripted("several letters from one position are not taken for one", "adapters/cli/explain_find.go", "explain", edit{`len(found) > 1 && found[0]`, `len(found) > 2 && found[0]`}),
	scripted("--here requests nothing for a consumer that the program does not have", "adapters/cli/replay.go", "here", edit{
		`				return refused("--here: %w", err)`, `				f.here = false`,
	}),
	scripted("--here carries the request out", "adapters/cli/replay.go", "here", edit{`		err := replayer.RunReplays(running)`, `		err := errors.New(running.Err().Error())`}),
	auditing("an audit finds claims without effects", "claims.go", "TestPlantedFaults", edit{`case n == 0 && c.Expect != AtMostOne:`, `case n < 0:`}),
	auditing("an audit finds effects that were made twice", "claims.go", "TestPlantedFaults", edit{`case n > 1 && c.Expect != AtLeastOne:`, `case n > 2:`}),
	auditing("an audit finds effects without claims", "effects.go", "TestPlantedFaults", edit{`				if !claimed[key.Hash()] {`, `				if claimed == nil {`}),
	auditing("a parked message is not lost", "messages.go", "TestMessages", edit{`if !parked[key.Hash()] && !claimed[key.Hash()] {`, `if parked != nil && !claimed[key.Hash()] {`}),
	auditing("a small sample compares claims wherever its walk begins", "claims.go", "TestSmallSample", edit{`max(readMost*cfg.Sample/page, pagesAtLeast)`, `max(readMost*cfg.Sample/page, 1)`}),
	auditing("a sample does not say that it has seen everything", "claims.go", "TestSample", edit{`			ended, w.whole = false, false`, `			ended, w.whole = false, true`}),
}
