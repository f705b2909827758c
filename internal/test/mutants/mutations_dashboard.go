package main

// showing is a mutation of adapters/dashboard that the test of that name must notice.
func showing(name, file, test string, edits ...edit) mutation {
	const pkg = "adapters/dashboard"
	return mutation{name: name, file: pkg + "/" + file, edits: edits, pkg: pkg, run: "^" + test + "$", fails: test}
}

// recording is a mutation of ops.Recorder that the test of that name must notice.
func recording(name, test string, edits ...edit) mutation {
	const pkg = "consumer/ops"
	return mutation{name: name, file: pkg + "/activity.go", edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var dashboardMutations = []mutation{
	showing("who may not view gets no page", "dashboard.go", "TestWithoutView", edit{`foreign.Handler(d.viewersOnly(mux))`, `foreign.Handler(mux)`}),
	showing("the payload of a letter is for those who may see payloads", "letters.go", "TestPermissions", edit{`if d.may(r, Payload) {`, `if true {`}),
	showing("the payload of a parked message is for those who may see payloads", "outbox.go", "TestPermissions", edit{
		`payload := d.may(r, Payload)`, `payload := true`,
	}),
	showing("header values are for those who may see payloads", "render.go", "TestPermissions", edit{`can{Payload: d.may(r, Payload)`, `can{Payload: true`}),
	showing("a key in the position that an action was requested by is hidden", "format.go", "TestHiddenKeysInCorners", edit{
		`{"message_id", "position"}`, `{"message_id"}`,
	}),
	showing("nothing can be pressed without the permission to act", "render.go", "TestPermissions", edit{`Act: d.may(r, Act)}`, `Act: true}`}),
	showing("an action takes the permission to act", "act.go", "TestRefusedActionsChangeNothing", edit{`d.cfg.Authorize(r, Act)`, `d.cfg.Authorize(r, View)`}),
	showing("nobody acts without a name", "act.go", "TestRefusedActionsChangeNothing", edit{`if err == nil && who == "" {`, `if false {`}),
	showing("a request of another site is refused", "dashboard.go", "TestRefusedActionsChangeNothing", edit{
		`foreign.Handler(d.viewersOnly(mux))`, `d.viewersOnly(mux)`,
	}),
	showing("an action on letters takes a reason", "act.go", "TestRefusedActionsChangeNothing", edit{
		`Expect: -1}
	if q.Reason == "" {
		return q,`, `Expect: -1}
	if false {
		return q,`,
	}),
	showing("an action on the outbox takes a reason", "act.go", "TestRefusedActionsChangeNothing", edit{
		`	if q.Reason == "" {
		return ops.Action{}`, `	if false {
		return ops.Action{}`,
	}),
	showing("an action that would choose other letters than its dry run is refused", "act.go", "TestExpect", edit{
		`	q.Expect, err = expected(r)
	return`, `	_, err = expected(r)
	return`,
	}),
	showing("the whole outbox is not discarded by a form without a filter", "act.go", "TestOutbox", edit{
		`filter == outbox.ParkedFilter{Until: filter.Until}:`, `filter == outbox.ParkedFilter{Topic: "none"}:`,
	}),
	showing("an action leaves out letters that were parked after its dry run", "plan.go", "TestArrivals", edit{
		`	p.Shown.Until = until(p.Plan.Newest)`, `	p.Shown.Until = "2100-01-01"`,
	}),
	showing("an action leaves out messages that were parked after its dry run", "plan.go", "TestArrivals", edit{
		`Bound: until(newest)`, `Bound: until(newest.AddDate(99, 0, 0))`,
	}),
	showing("an action on the outbox without a dry run is refused", "act.go", "TestOutbox", edit{
		`	case filter.Until.IsZero(), q.Kind == ops.DiscardOutbox && q.Expect < 0:`, `	case filter.Until.IsZero() && q.Kind == "":`,
	}),
	operating("a choice of parked messages that is outdated changes nothing", "consumer/ops/parked.go", "a_look_that_is_outdated_changes_nothing", edit{
		`r.Expect >= 0 && len(chosen.Seqs) != r.Expect`, `r.Expect >= 0 && len(chosen.Seqs) > r.Expect`,
	}),
	operating("a choice of parked messages says when the latest was parked", "consumer/ops/parked.go", "a_message_that_is_parked_after_a_look_is_not_changed", edit{
		`	c.Newest = page[i].ParkedAt`, `	c.Newest = time.Time{}`,
	}),
	showing("a repair takes the permission to see payloads", "repair.go", "TestRepairRefused", edit{
		`[]Permission{Act, Payload}`, `[]Permission{Act}`,
	}),
	showing("a repair is compared only by those who may act", "repair.go", "TestRepairRefused", edit{
		`[]Permission{Act, Payload}`, `[]Permission{Payload}`,
	}),
	showing("a repair is of the payload that was compared", "repair.go", "TestRepairKeepsBytes", edit{
		`r.PostFormValue("sum") != sum(letter.Message.Payload)`, `r.PostFormValue("sum") == ""`,
	}),
	showing("a repair has the newlines of the original", "repair.go", "TestRepairKeepsBytes", edit{
		`[]byte(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", newline))`, `[]byte(strings.ReplaceAll(text, "\r\n", newline+newline))`,
	}),
	showing("a payload that a form would change is edited as base64", "repair.go", "TestRepairKeepsBytes", edit{
		`bytes.ContainsRune(plain, '\r') || `, ``,
	}),
	showing("the outbox is searched only when somebody asks", "explain.go", "TestExplainOutbox", edit{
		`err == nil && p.Search {`, `err == nil {`,
	}),
	showing("a hidden key is not in the address of a search", "explain.go", "TestExplainOutbox", edit{
		`	case p.Post:
`, `	case p.Post && p.ID == "":
`,
	}),
	showing("a search that stops says so", "letters.go", "TestLimitedSearch", edit{
		`	case !list.Searched.IsZero():`, `	case false:`,
	}),
	showing("what a message contains is text", "format.go", "TestHostileContentIsEscaped", edit{
		`"visible":     visible,`, `"visible":     func(s string) template.HTML { return template.HTML(visible(s)) },`,
	}),
	showing("no script, style or connection but the dashboard's own", "dashboard.go", "TestHeaders", edit{`default-src 'none'; `, ``}),
	showing("hidden keys are on no page", "format.go", "TestHideKeys", edit{`return visible(d.cfg.HideKeys.Key(s))`, `return visible(s)`}),
	showing("a count that stopped at its limit says so", "format.go", "TestCappedCounts", edit{`	if n > limit {`, `	if false {`}),
	showing("a total of counts that stopped says so", "overview.go", "TestCappedCounts", edit{`capped || c.Capped`, `capped`}),
	showing("all viewers share one snapshot", "snapshot.go", "TestViewersShareASnapshot", edit{`time.Since(s.taken) < snapshotAge`, `false`}),
	showing("a hundred viewers are live at once, not more", "live.go", "TestViewersShareASnapshot", edit{`maxViewers = 100 `, `maxViewers = 1000 `}),
	showing("an old state is shown as old", "overview.go", "TestDatabaseAway", edit{
		`add(true, "Blind", "", "The state of the database could not be read for %s: %v. What follows is older.", span(o.Stale), s.Err)`, `_ = o.Stale`,
	}),
	showing("a dry run proposes to end after failures", "plan.go", "TestReplay", edit{`if !r.Form.Has("max_failures") {`, `if r.Form == nil {`}),
	showing("Loopback grants nothing but View", "authorize.go", "TestLoopback", edit{`	if p != View {`, `	if false {`}),
	showing("Loopback refuses pages of other sites whose name resolves to this machine", "authorize.go", "TestLoopback", edit{
		` || !loopbackHost(r.Host)`, ``,
	}),
	{
		name: "the dashboard calls no discarded message processed", file: "adapters/dashboard/explain.go", pkg: "adapters/dashboard",
		run: "^TestExplainDiscarded$/^sqlite$", fails: "TestExplainDiscarded", edits: []edit{{`if d, ok := e.ClaimedByDiscard(); ok {`, `if d, ok := e.ClaimedByDiscard(); ok && d.Who == "" {`}},
	},
	{
		name: "a page of letters reads the letters of the page", file: "internal/operator/letters.go", pkg: "adapters/dashboard", run: "^TestRowsRead$/^postgres$", fails: "TestRowsRead",
		edits: []edit{{`chosen.Owner = owner`, `_ = owner`}},
	},
	{
		name: "the failures of an action are read in the order of an index", file: "internal/operator/results.go", pkg: "adapters/dashboard",
		run: "^TestRowsRead$/^postgres$", fails: "TestRowsRead", edits: []edit{{`	if f.Outcome != "" {`, `	if f.Outcome == "rejected" {`}},
	},
	{
		name: "a page without a match searches a part of the letters", file: "internal/operator/letters.go", pkg: "adapters/dashboard",
		run: "^TestRowsRead$/^postgres$", fails: "TestRowsRead", edits: []edit{{`max(n/len(owners), 1)`, `100 * n`}},
	},
	{
		name: "a list of actions does not count what has ended", file: "internal/operator/actions.go", pkg: "adapters/dashboard",
		run: "^TestRowsRead$/^postgres$", fails: "TestRowsRead", edits: []edit{{`			if actions[i].Results != nil {`, `			if actions[i].Ended.IsZero() {`}},
	},
	{
		name: "a dry run without a match searches a part of the letters", file: "consumer/ops/plan.go", pkg: "adapters/dashboard",
		run: "^TestRowsRead$/^postgres$", fails: "TestRowsRead", edits: []edit{{`s.Keys().Reach(ctx, filter, searched*most)`, `s.Keys().Reach(ctx, filter, 1000*searched*most)`}},
	},
	operating("a limited search goes on where it stopped", "internal/operator/letters.go", "a_limited_search_finds_each_letter_once", edit{
		`Since: f.Since, Until: f.Until, After: f.After})`, `Since: f.Since, Until: f.Until})`,
	}),
	operating("the letters of all consumers are listed newest first, page by page", "internal/operator/letters.go", "dead_letters_of_several_consumers_are_merged", edit{
		`if c := b.First.Compare(a.First); c != 0 {`, `if c := b.First.Compare(a.First); c > 5 {`,
	}),
	operating("activity of the same minute and process is replaced", "internal/dialect/operator_dialects.go", "activity_is_replaced,_listed_and_forgotten", edit{
		"replaced: `ON CONFLICT (minute, consumer, node) DO UPDATE SET counts = excluded.counts`", "replaced: `ON CONFLICT (minute, consumer, node) DO NOTHING`",
	}),
	operating("activity is kept for 48 hours", "internal/operator/activity.go", "activity_is_replaced,_listed_and_forgotten", edit{`Add(-ops.ActivityKept)`, `Add(-10 * ops.ActivityKept)`}),
	recording("the activity of a process is not replaced by that of its successor", "TestRecorderCountsOnce", edit{` + "/" + rand.Text()[:6]`, ` + rand.Text()[:0]`}),
	recording("a message is counted in one minute", "TestRecorder", edit{`a.Minute, a.Messages = minute, map[observe.Outcome]int64{}`, `a.Minute = minute`}),
	recording("what is counted while the database is away is written later", "TestRecorder", edit{`	r.past = append(r.past, *a)`, `	r.past = append(r.past[:0:0], *a)`}),
	recording("the activity is written once more at the end", "TestRecorder", edit{`_ = r.write(last)`, `_ = last`}),
}
