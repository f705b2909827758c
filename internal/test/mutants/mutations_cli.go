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
	scripted("--yes needs --expect", "adapters/cli/act.go", "usage", edit{`case f.yes && f.expect < 0:`, `case f.yes && f.expect < -9:`}),
	scripted("--hide-keys hides keys", "adapters/cli/print.go", "explain", edit{`return p.keys.Key(key)`, `return key`}),
	scripted("a command that reads creates no database", "cmd/txonce/open.go", "usage", edit{`err != nil && !t.Create:`, `err != nil && t.Schema != "":`}),
	scripted("the horizon is not set where stores do not look for it", "adapters/cli/horizon.go", "horizon", edit{`to.After(latest)`, `to.Year() > 9000`}),
	scripted("a discard in parts stops at an unexpected number", "adapters/cli/act.go", "outbox", edit{
		`case f.expect >= 0 && match != f.expect:`, `case f.expect >= 0 && match < f.expect:`,
	}),
	printing("Ctrl-C at a question changes nothing", "confirm.go", "TestConfirmIsInterrupted", edit{`return interrupted("nothing was changed")`, `return nil`}),
	printing("JSON cannot control a terminal", "print.go", "TestJSONIsHarmless", edit{`if r == '\n' || unicode.IsPrint(r) {`, `if r != 0 {`}),
	printing("output that cannot be written is an error", "print.go", "TestOutputIsNotComplete", edit{`err != nil && p.failed == nil {`, `err != nil && p.out == nil {`}),
	printing("a discard of parked messages deletes first what waits", "outbox_act.go", "TestOutboxChangesWhatItCounted", edit{`		slices.Reverse(seqs) //`, `		//`}),
	printing("an interrupted discard says what it has done", "letters_discard.go", "TestDiscardSaysWhatIsDone", edit{`func() { n++; p.show(n, 0) }`, `func() { p.show(n, 0) }`}),
	scripted("a dry run chooses the oldest letters, as the replay does", "consumer/ops/plan.go", "choice", edit{`slices.Reverse(chosen)`, `slices.Reverse(chosen[:0])`}),
	scripted("a dry run leaves out letters that wait for another replay", "consumer/ops/plan.go", "choice", edit{`!marked[l.ID]`, `marked != nil`}),
	scripted("a message that is not parked does not count", "adapters/cli/outbox_act.go", "choice", edit{`		case ok:`, `		case ok, seq > 0:`}),
	scripted("a replay that ended early is not success", "adapters/cli/follow.go", "choice", edit{`if action.Note != replayDone {`, `if action.Note == "" {`}),
	{
		name: "an error about a DSN does not have its password", file: "cmd/txonce/open.go", pkg: "cmd/txonce", run: exactly("TestErrorsHideThePassword"),
		fails: "TestErrorsHideThePassword", short: true, edits: []edit{{`text, ok := strings.CutPrefix(wrong.Error(), begin)`, `text, ok := strings.CutPrefix(wrong.Error(), begin[:0])`}},
	},
	{
		name: "check looks at the tables of --schema", file: "adapters/cli/check_server.go", pkg: "cmd/txonce",
		run: exactly("TestCheck/postgres/a_table_of_another_schema_is_not_logged"), fails: "TestCheck/postgres/a_table_of_another_schema_is_not_logged",
		edits: []edit{{`	if schema != "" {`, `	if schema == "public" {`}},
	},
	auditing("an audit finds claims without effects", "claims.go", "TestPlantedFaults", edit{`case n == 0 && c.Expect != AtMostOne:`, `case n < 0:`}),
	auditing("an audit finds effects that were made twice", "claims.go", "TestPlantedFaults", edit{`case n > 1 && c.Expect != AtLeastOne:`, `case n > 2:`}),
	auditing("an audit finds effects without claims", "effects.go", "TestPlantedFaults", edit{`				if !claimed[key.Hash()] {`, `				if claimed == nil {`}),
	auditing("a parked message is not lost", "messages.go", "TestMessages", edit{`if !parked[key.Hash()] && !claimed[key.Hash()] {`, `if parked != nil && !claimed[key.Hash()] {`}),
	auditing("a small sample compares claims wherever its walk begins", "claims.go", "TestSmallSample", edit{`max(readMost*cfg.Sample/page, pagesAtLeast)`, `max(readMost*cfg.Sample/page, 1)`}),
	auditing("a sample does not say that it has seen everything", "claims.go", "TestSample", edit{`			ended, w.whole = false, false`, `			ended, w.whole = false, true`}),
}
