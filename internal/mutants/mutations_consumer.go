package main

// handling is a mutation of the consumer that the test of that name must notice.
func handling(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: "consumer/" + file, edits: edits, pkg: "consumer", run: "^" + test + "$", fails: test}
}

var consumerMutations = []mutation{
	handling("a new message runs, a known one does not", "attempt.go", "TestEffectsOfAMessageHappenOnce", edit{
		`if ans.verdict != dedup.First {
				continue
			}
			if err := b.handle(`,
		`if err := b.handle(`,
	}),
	handling("other content is parked", "attempt.go", "TestWhatIsParkedAndWhy", edit{
		`ans.refused = refuse(ReasonMismatch, dedup.ErrMismatch)`, `ans.verdict = dedup.Duplicate`,
	}),
	handling("a known further key parks", "attempt.go", "TestFurtherKeys", edit{
		`if further.Verdict != dedup.First {
					ans.refused`,
		`if further.Verdict == 99 {
					ans.refused`,
	}),
	handling("a panic is an error", "attempt.go", "TestPanicsAreReportedWithTheirStack", edit{
		`	defer recovered(&err)
	if c.cfg.Handle == nil {`,
		`	if c.cfg.Handle == nil {`,
	}),
	handling("a faulty database parks nothing", "batch.go", "TestAttempts", edit{
		`case !a.handling && b.cfg.Store.Retryable(a.err):`, `case false:`,
	}, edit{
		`case b.cfg.Store.Retryable(err): // also`, `case false: // also`,
	}),
	handling("a shutdown counts against nobody", "batch.go", "TestAContextThatEndsCountsAgainstNobody", edit{
		`case ctx.Err() != nil: // a shutdown`, `case false: // a shutdown`,
	}),
	handling("a twin in flight is nobody's fault", "batch.go", "TestATwinInAnotherProcessIsDeferredWithoutBlame", edit{
		`case errors.Is(err, dedup.ErrInFlight):`, `case false:`,
	}),
	handling("the halves of a failed batch are both tried", "batch.go", "TestABatchIsTakenApart", edit{
		`		b.run(ctx, todo[len(todo)/2:])
`, ``,
	}),
	handling("what stands behind a failure of its key waits", "batch.go", "TestABatchHoldsBackOnlyItsOwnKey", edit{
		`	b.held[key] = retry
`, `	_ = retry
`,
	}),
	handling("parking settles a COMMIT of unknown outcome", "park.go", "TestParkingSettlesAnUnknownCommit", edit{
		`if it.rec.Key.ID != "" && !errors.Is(cause, dedup.ErrKeyCollision) {`, `if false {`,
	}),
	handling("a parked message leaves no claim", "park.go", "TestReplay", edit{
		`if err := b.cfg.Store.Forget(ctx, tx, it.rec.Key); err != nil {`, `if err := error(nil); err != nil {`,
	}),
	handling("two letters of equal bytes are two", "park.go", "TestTwoLettersAreTwo", edit{
		`"key", it.rec.Key.Consumer, it.rec.Key.Tenant, it.rec.Key.ID}`, `"key", it.rec.Key.Consumer, it.rec.Key.Tenant}`,
	}),
	handling("parking that fails is tried again", "park.go", "TestParkingThatFailsIsRetriedWithoutBlame", edit{
		`b.fault(ctx, []int{i}, epoch, fmt.Errorf("park: %w", err))`, `_ = epoch
		b.fail(i, err)`,
	}),
	handling("a spent parking limit pauses", "park.go", "TestParkLimit", edit{
		`	if wait > 0 {`, `	if wait > 0 && false {`,
	}),
	handling("a replay claims what was parked", "replay.go", "TestReplay", edit{
		`	if rec.Key != own.Key {
		if`, `	if true {
		if`,
	}),
	handling("what is discarded stays discarded", "replay.go", "TestDiscard", edit{
		`recs = append(recs, rec)
	}
	if err == nil {
		err = c.cfg.Store.InTx`,
		`_ = rec
	}
	if err == nil {
		err = c.cfg.Store.InTx`,
	}),
	handling("copies in one process wait for each other", "keylock.go", "TestAStormOfCopiesIsOneTransaction", edit{
		`	if !held {
		if l.keys`,
		`	if !held || true {
		if l.keys`,
	}),
	handling("no default key", "config.go", "TestNewNamesTheFieldItRefuses", edit{
		`	case cfg.Key == nil:
		return`,
		`	case cfg.Key == nil && false:
		return`,
	}),
}
