package main

// stripehook is a mutation that the test of that name must notice, without servers.
func stripehook(name, file, test string, edits ...edit) mutation {
	const pkg = "adapters/webhook/stripehook"
	return mutation{name: "stripe: " + name, file: pkg + "/" + file, edits: edits, pkg: pkg, run: "^" + test + "$", fails: test, short: true}
}

var stripeMutations = []mutation{
	stripehook("an event of the future does not move the checkpoint past the events that come later", "backfill.go", "TestCheckpointStaysBehindTheClock", edit{
		`min(max(found.newest, p.to), now)`, `max(found.newest, p.to, min(now, 0))`,
	}),
	stripehook("events ahead of the clock are handled although the list is slow", "backfill.go", "TestCheckpointStaysBehindTheClock", edit{
		`		found, err := b.collect(ctx, p)`, `		now = time.Now().Unix()
		found, err := b.collect(ctx, p)`,
	}),
	stripehook("a list that repeats its pages ends with an error", "backfill.go", "TestListWithoutEnd", edit{
		`if pages++; page.more &&`, `if pages++; false &&`,
	}),
	stripehook("a checkpoint in the future is corrected", "backfill.go", "TestCheckpointStaysBehindTheClock", edit{
		`if now := time.Now(); seen > now.Unix() {`, `if now := time.Now(); seen > now.Unix() && false {`,
	}),
	stripehook("a backfill whose keys would differ from the webhooks' is refused", "backfill_config.go", "TestNewBackfillRefuses", edit{
		`&& !c.Verifier.onlyConnect() {`, `&& false {`,
	}),
	stripehook("an altered body is refused", "verifier.go", "TestBodyIsSigned", edit{
		`if signers.none() {`, `if signers.none() && false {`,
	}),
	stripehook("a signature of the future is refused", "verifier.go", "TestTime", edit{
		`strict.Recent(signed, received, v.cfg.Tolerance); err != nil`, `strict.Recent(signed, received, v.cfg.Tolerance); err != nil && received.After(signed)`,
	}),
	stripehook("a test event does not pass for a live one", "verifier.go", "TestModes", edit{
		`case e.Livemode && s.live, !e.Livemode && s.test:`, `case s.live || s.test:`,
	}),
	stripehook("a header with two times is refused", "signature.go", "TestSignatureHeader", edit{
		`if s.timestamp != "" { // which`, `if false { // which`,
	}),
	stripehook("v0 is not a signature", "signature.go", "TestSignatureHeader", edit{
		`		case "v1":`, `		case "v0", "v1":`,
	}),
	stripehook("a short secret is refused", "config.go", "TestNewRefuses", edit{
		`strict.Secret(value, minSecret)`, `strict.Secret(value, 1)`,
	}),
	{
		name: "stripe: an event with two IDs is refused", file: "adapters/webhook/internal/strict/json.go", pkg: "adapters/webhook/stripehook", short: true,
		run: "^TestSignedContentThatCannotBeRead$", fails: "TestSignedContentThatCannotBeRead",
		edits: []edit{{`if found != "" {`, `if false {`}},
	},
	stripehook("a thin event and its snapshot event have one effect", "event.go", "TestThinSnapshotAndBackfillHaveOneEffect", edit{
		`	if e.Snapshot != "" {`, `	if false {`,
	}),
	stripehook("a redelivery with other bytes is a duplicate", "keys.go", "TestFingerprintIsStable", edit{
		`fingerprint := fingerprint(e)`, `fingerprint := dedup.FingerprintOf(payload)`,
	}),
	stripehook("the checkpoint does not pass a rejected event", "backfill.go", "TestRejectedEventsHoldTheCheckpoint", edit{
		`rejected == nil && done > seen`, `done > seen`,
	}),
	stripehook("the checkpoint does not pass an event that waits", "backfill_handle.go", "TestCheckpointWaitsForEachEvent", edit{
		`			queue = append(queue, batch[i])`, ``,
	}),
	stripehook("a backfill does not repeat without a pause", "backfill_handle.go", "TestBackfillPausesBetweenAttempts", edit{
		`max(retry.After, backoff.HalfJitter(repeatBase, repeatLimit, batch[i].failed))`, `max(retry.After, backoff.HalfJitter(0, 0, batch[i].failed))`,
	}),
	stripehook("Run pauses between two passes", "backfill_config.go", "TestNewBackfillRefuses", edit{
		`c.Interval < minInterval`, `c.Interval < 0`,
	}),
	stripehook("a page that is too large does not stop a backfill", "backfill_list.go", "TestBackfillOfLargePages", edit{
		`errors.Is(err, errTooLarge) && limit > 1`, `errors.Is(err, errTooLarge) && limit > pageSize`,
	}),
	stripehook("an event that becomes visible late is fetched", "backfill.go", "TestBackfillOverlap", edit{
		`max(seen-overlap, b.since)`, `max(seen-0*overlap, b.since)`,
	}),
	stripehook("events before Since do not run", "backfill.go", "TestBackfillContinues", edit{
		`max(seen-overlap, b.since)`, `max(seen-overlap, 0)`,
	}),
	stripehook("all pages are fetched", "backfill_list.go", "TestBackfillPages", edit{
		`page.more = *list.HasMore`, `page.more = false`,
	}),
	stripehook("a rate limit is waited for", "client.go", "TestBackfillRepeatsRequests", edit{
		`a.after = min(`, `_ = min(`,
	}),
	stripehook("the API key follows no redirect", "client_config.go", "TestBackfillGivesARequestUp", edit{
		`return http.ErrUseLastResponse`, `return nil`,
	}),
}
