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

// onTopic is a mutation that a test against a real Kafka must notice.
func onTopic(name, test string, edits ...edit) mutation {
	return mutation{name: name, file: "cmd/txonce/published.go", edits: edits, pkg: "cmd/txonce", run: exactly(test), fails: test}
}

// printing is a mutation that a test of adapters/cli must notice.
func printing(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "adapters/cli/" + file, edits: edits, pkg: "adapters/cli", run: exactly(test), fails: test, short: true}
}

var cliMutations = []mutation{
	{
		name: "horizon set does not park new messages of other consumers unasked", file: "adapters/cli/horizon.go", pkg: "adapters/cli", short: true,
		run: "^TestHorizonOfOthersIsNotMovedPastNow$", fails: "TestHorizonOfOthersIsNotMovedPastNow",
		edits: []edit{{`h.Horizon.After(latest) && `, `h.Horizon.Before(latest) && `}},
	},
	{
		name: "a process that reports nothing any more is not paused", file: "consumer/ops/activity.go", pkg: "consumer/ops", run: "^TestPaused$", fails: "TestPaused",
		short: true, edits: []edit{{`Sub(row.Minute) < ActivityFresh {`, `Sub(row.Minute) < 100*ActivityFresh {`}},
	},
	scripted("status names the consumers that are paused", "adapters/cli/status.go", "status", edit{
		`	for _, name := range slices.Sorted(maps.Keys(p.causes)) {`, `	for _, name := range slices.Sorted(maps.Keys(p.causes))[:0] {`,
	}),
	scripted("status names the consumers whose workers do not report pauses", "adapters/cli/pauses.go", "status", edit{`if !p.reported[c.Name] {`, `if p.reported == nil {`}),
	scripted("the misspelled name of a consumer is refused", "adapters/cli/known.go", "known", edit{`return noConsumer(name, known)`, `return nil`}),
	scripted("a line of an error is printed once", "cmd/txonce/main.go", "usage", edit{`printed[line] = true`, `printed[line] = false`}),
	{
		name: "an audit reads each claim once", file: "consumer/ops/audit/claims.go", pkg: "consumer/ops/audit", run: "^TestRowsRead$/^postgres$",
		fails: "TestRowsRead/postgres", edits: []edit{{`SELECT %s AS hash, consumer`, `SELECT %s, consumer`}},
	},
	printing("the command line changes nothing without a confirmation", "confirm.go", "TestConfirm", edit{`	if yes {`, `	if yes || p.asks {`}),
	printing("a script that is no terminal is refused without --yes", "confirm.go", "TestConfirm", edit{"\tif !p.asks {\n\t\treturn refused(\"nothing was changed: the input is no terminal; confirm with --yes\")", "\tif p.json {\n\t\treturn nil"}),
	printing("a table shows the end of an error", "print.go", "TestTableShowsErrors", edit{`width = lastWidth`, `width = cellWidth`}),
	printing("a script without --yes learns the number for --expect", "confirm.go", "TestConfirmNamesExpect", edit{`confirm with --yes --expect %d", n)`, `confirm with --yes")`}),
	printing("text of messages cannot control a terminal", "print.go", "TestTextIsHarmless", edit{`case !unicode.IsPrint(r):`, `case !unicode.IsPrint(r) && r == 0:`}),
	printing("an interrupted command exits with 5", "exit.go", "TestExitCodes", edit{`		code = ExitInterrupted`, `		code = ExitFine`}),
	scripted("--yes needs --expect", "adapters/cli/act.go", "usage", edit{`case f.yes && f.expect < 0:`, `case f.yes && f.expect < -9:`}),
	scripted("an audit that compares nothing is no success", "adapters/cli/audit.go", "audit", edit{`case len(idle) > 0:`, `case len(idle) > 9:`}),
	scripted("errors about a flag name it", "adapters/cli/exit.go", "usage", edit{`return withFlags(e.err.Error())`, `return e.err.Error()`}),
	scripted("--hide-keys hides keys", "adapters/cli/print.go", "explain", edit{`return p.keys.Key(key)`, `return key`}),
	scripted("--hide-keys hides the IDs of messages", "adapters/cli/outbox.go", "outbox", edit{`out.key(m.Key), out.key(m.ID), fmt`, `out.key(m.Key), m.ID, fmt`}),
	scripted("--hide-keys hides the IDs of messages in JSON, too", "adapters/cli/outbox.go", "outbox", edit{`ID: out.key(m.ID), Topic`, `ID: m.ID, Topic`}),
	scripted("dead letters are chosen by their position", "adapters/cli/letters.go", "letters", edit{`Position: f.position, Error`, `Position: "", Error`}),
	scripted("explain tells a message that was discarded from one that was processed", "adapters/cli/explain_text.go", "letters", edit{
		`if d, ok := e.ClaimedByDiscard(); ok {`, `if d, ok := e.ClaimedByDiscard(); ok && d.Who == "" {`,
	}),
	{
		name: "MySQL keeps a large payload of a repair", file: "migrations/mysql/0007_discards.up.sql", pkg: "adapters/sqlstore", run: "^TestOperatorMariaDB$/^a_repair_is_for_one_letter$",
		fails: "TestOperatorMariaDB/a_repair_is_for_one_letter", edits: []edit{{`note MEDIUMTEXT`, `note TEXT`}},
	},
	{
		name: "a discard is recorded with its key", file: "internal/operator/replays.go", pkg: "adapters/sqlstore", run: "^TestOperatorSQLite$/^a_discard_is_explained$",
		fails: "TestOperatorSQLite/a_discard_is_explained", short: true, edits: []edit{{`key = id(letter.Record.Key.Hash())`, `key = nil`}},
	},
	{
		name: "the claim of a discarded mismatch is not the discard's", file: "internal/operator/replays.go", pkg: "adapters/sqlstore", run: "^TestOperatorSQLite$/^a_discard_is_explained$",
		fails: "TestOperatorSQLite/a_discard_is_explained", short: true, edits: []edit{{`claims[0].Verdict == dedup.First`, `claims[0].Verdict != 0`}},
	},
	scripted("a command that reads creates no database", "cmd/txonce/open.go", "usage", edit{`err != nil && !t.Create:`, `err != nil && t.Schema != "":`}),
	scripted("the horizon is not set where stores do not look for it", "adapters/cli/horizon.go", "horizon", edit{`to.After(latest)`, `to.Year() > 9000`}),
	scripted("a discard in parts stops at an unexpected number", "adapters/cli/act.go", "outbox", edit{
		`case f.expect >= 0 && match != f.expect:`, `case f.expect >= 0 && match < f.expect:`,
	}),
	printing("Ctrl-C at a question changes nothing", "confirm.go", "TestConfirmIsInterrupted", edit{`return interrupted("nothing was changed")`, `return nil`}),
	printing("JSON cannot control a terminal", "print.go", "TestJSONIsHarmless", edit{`if r == '\n' || unicode.IsPrint(r) {`, `if r != 0 {`}),
	printing("output that cannot be written is an error", "print.go", "TestOutputIsNotComplete", edit{`err != nil && p.failed == nil {`, `err != nil && p.out == nil {`}),
	{
		name: "a discard of parked messages deletes first what waits", file: "consumer/ops/parked.go", pkg: "adapters/cli", run: exactly("TestOutboxChangesWhatItCounted"),
		fails: "TestOutboxChangesWhatItCounted", short: true, edits: []edit{{`		slices.Reverse(seqs) //`, `		//`}},
	},
	printing("an interrupted discard says what it has done", "letters_discard.go", "TestDiscardSaysWhatIsDone", edit{`func(int) { n++; p.show(n, 0) }`, `func(int) { p.show(n, 0) }`}),
	scripted("a dry run chooses the oldest letters, as the replay does", "consumer/ops/plan.go", "choice", edit{`letters = letters[n:]`, `letters = letters[:len(letters)-n]`}),
	scripted("a dry run leaves out letters that wait for another replay", "consumer/ops/plan.go", "choice", edit{`bool { return elsewhere[l.ID] }`, `bool { return elsewhere == nil }`}),
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
	scripted("a hidden key is found by its hash", "adapters/cli/explain_find.go", "explain", edit{`hide.Key(k.ID) == digits`, `hide.Key(k.Consumer) == digits`}),
	scripted("several letters from one position are not taken for one", "adapters/cli/explain_find.go", "explain", edit{`len(found) > 1 && found[0]`, `len(found) > 2 && found[0]`}),
	scripted("--here requests nothing for a consumer that the program does not have", "adapters/cli/replay.go", "here", edit{
		`				return refused("--here: %w", err)`, `				f.here = false`,
	}),
	scripted("--here carries the request out", "adapters/cli/replay.go", "here", edit{`		err := replayer.RunReplays(running)`, `		err := errors.New(running.Err().Error())`}),
	auditing("an audit finds claims without effects", "claims.go", "TestPlantedFaults", edit{`case n == 0 && c.Expect != AtMostOne:`, `case n < 0:`}),
	auditing("an audit finds effects that were made twice", "claims.go", "TestPlantedFaults", edit{`case n > 1 && c.Expect != AtLeastOne:`, `case n > 2:`}),
	auditing("an audit finds effects without claims", "effects.go", "TestPlantedFaults", edit{`				if !claimed[key.Hash()] {`, `				if claimed == nil {`}),
	auditing("a parked message is not lost", "messages.go", "TestMessages", edit{`case parked[key.Hash()] || claimed[key.Hash()]:`, `case parked == nil || claimed[key.Hash()]:`}),
	auditing("messages that were read to their end are no sample", "messages.go", "TestMessages", edit{`r.Whole = true`, `r.Whole = cfg.Sample == 0`}),
	auditing("a small sample compares claims wherever its walk begins", "claims.go", "TestSmallSample", edit{`max(readMost*sample/page, pagesAtLeast)`, `max(readMost*sample/page, 1)`}),
	auditing("an audit finds outbox messages that are not on their topic", "outbox.go", "TestOutbox", edit{`			if c.Expect != AtMostOne {`, `			if c.Expect == "none" {`}),
	auditing("an audit finds outbox messages that were published twice", "outbox.go", "TestOutbox", edit{`case m.times > 1 && c.Expect != AtLeastOne:`, `case m.times > 2:`}),
	auditing("a message that is still in the outbox is not lost", "outbox_list.go", "TestOutboxPerClaim", edit{`[]string{"outbox_messages", "outbox_delayed",`, `[]string{"outbox_delayed",`}),
	auditing("a message that its topic may have deleted is not lost", "outbox.go", "TestOutboxSample", edit{`case !kept.IsZero() && !m`, `case kept.Year() > 9000 && !m`}),
	auditing("nothing is called lost when a topic was not read to its end", "outbox.go", "TestOutboxUnfinished", edit{`case !goOn && list.known:`, `case !goOn && c.Rate < 0:`}),
	auditing("without a list of what was sent, an audit says that it looked only for repeats", "outbox_list.go", "TestOutboxWithoutList", edit{
		`!list.known {`, `c.Rate < 0 {`,
	}),
	{
		name: "an audit that cannot find lost messages is no proof", file: "adapters/cli/audit.go", pkg: "cmd/txonce", run: exactly("TestAuditPublishedWithoutKeepSent"),
		fails: "TestAuditPublishedWithoutKeepSent", edits: []edit{{`r.NoLosses && cfg.Expect != audit.AtMostOne`, `false`}},
	},
	auditing(
		"what was sent is listed before the topic is read", "outbox.go", "TestOutboxDuringReading",
		edit{
			"	list, err := cfg.confirmed(ctx, of, &r)",
			"	source, err := of.Published.Read(ctx, time.Time{}, time.Time{})\n	if err != nil {\n		return r, err\n	}\n	list, err := cfg.confirmed(ctx, of, &r)",
		},
		edit{
			"	source, err := of.Published.Read(ctx, list.from(of.Since), list.until())",
			"	_, err = of.Published.Read(ctx, list.from(of.Since), list.until())",
		},
	),
	onTopic("an audit reads a topic no further than it ended when the reading began", "TestReadPublished", edit{`if raw.Offset >= at.last {`, `if raw.Offset < 0 {`}, edit{`			case raw.Offset == at.last-1:`, `			case raw.Offset == at.last:`}),
	onTopic("a time without message is the end of a partition", "TestReadPublished", edit{`if offset < 0 {`, `if offset < -1 {`}),
	onTopic("what a topic has deleted is not called lost", "TestKeptByTopic", edit{`				kept = msgs[0].Time`, `				kept = latest`}),
	onTopic("a compacted topic is not audited", "TestPublishedIsRefused", edit{`strings.Contains(policy, "compact")`, `strings.Contains(policy, "none")`}),
	auditing("a sample does not say that it has seen everything", "claims.go", "TestSample", edit{`			ended, w.whole = false, false`, `			ended, w.whole = false, true`}),
}
