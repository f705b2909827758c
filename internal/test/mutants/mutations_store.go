package main

const (
	pgx      = "adapters/pgxstore"
	pgxSuite = "TestStore/postgres15/"
)

// store is a mutation that must fail the case caseName of deduptest.TestStore on pgxstore.
func store(name, file, caseName string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: pgx, run: "TestStore/postgres15$/^" + caseName, fails: pgxSuite + caseName}
}

// model is a mutation of the horizon that must fail the property tests with a model of many nodes.
func model(name string, edits ...edit) mutation {
	return mutation{name: name, file: "dedup/storekit/horizon.go", edits: edits, pkg: "dedup/storekit", run: "TestHorizonModel$|TestHorizonModelAtLength|TestProvable", fails: "Test", tries: 3}
}

// keys is a mutation of the derivation of keys that the test of that name must notice.
func keys(name, file, test string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: "dedup", run: exactly(test), fails: test, short: true}
}

// idTime is a mutation of how the time in an ID is found. The table of frozen times must notice it.
func idTime(name, old, with string) mutation {
	return mutation{
		name: "keys: " + name, file: "internal/idtime/idtime.go", edits: []edit{{old, with}},
		pkg: "internal/idtime", run: "^TestOf$", fails: "TestOf", short: true,
	}
}

var storeMutations = []mutation{
	store("a handler's error rolls the transaction back", pgx+"/intx.go", "rollback_un-claims", edit{
		`		return g.lookBack(ctx, g.blame(err))`,
		`		_ = s.commit(ctx, c.tx, lateWrites{}, false)
		return g.lookBack(ctx, g.blame(err))`,
	}),
	store("only the transaction that inserted the claim runs the handler", "internal/claims/claim.go", "first_wins/read_committed", edit{
		`if !c.Inserted[row.KeyHash] {
			found`,
		`if false {
			found`,
	}),
	store("a claim waits for another transaction no longer than ClaimTimeout", pgx+"/claim.go", "bounded_wait_gives_ErrInFlight_and_frees_the_connection/read_committed", edit{
		`context.WithTimeout(ctx, c.store.cfg.ClaimTimeout)
	defer cancel()
	err := do(limited)`,
		`context.WithTimeout(ctx, 100*c.store.cfg.ClaimTimeout)
	defer cancel()
	err := do(limited)`,
	}),
	store("a claim that timed out counts no attempt", pgx+"/errors.go", "bounded_wait_gives_ErrInFlight_and_frees_the_connection/read_committed", edit{
		`return fmt.Errorf("%w, for more than %v", dedup.ErrInFlight`, `return fmt.Errorf("%v, for more than %v", dedup.ErrInFlight`,
	}),
	{
		name: "a frozen process loses its claim after IdleInTxTimeout", file: "internal/dialect/postgres.go",
		edits: []edit{{"coalesce($8::text, '0')", "left($8::text, 0) || '0'"}},
		pkg:   pgx, run: "TestFrozenProcessLosesItsClaim", fails: "TestFrozenProcessLosesItsClaim",
	},
	store("a known key with different content is a mismatch", "internal/claims/plan.go", "mismatch_is_visible", edit{
		`if row.Fingerprint.Matches(rec.Fingerprint) {`, `if true {`,
	}),
	store("keys whose fields concatenate to the same text differ", "dedup/key.go", "keys_that_concatenate_alike_never_meet", edit{
		`b = binary.AppendUvarint(b, uint64(len(field)))`, `_ = binary.MaxVarintLen16`,
	}),
	keys("the hash of a key never changes", "dedup/key.go", "TestKeyDerive", edit{`"txonce key 2"`, `"txonce key 3"`}),
	keys("keys are in the order of the times in their IDs", "dedup/key.go", "TestKeysAreInTheOrderOfTheirTimes", edit{
		`if ms := idtime.Of(k.ID); ms > 0 {`, `if ms := idtime.Of(k.ID); false {`,
	}),
	keys("keys with the same time differ", "dedup/key.go", "TestKeysOfOneTimeDiffer", edit{
		`binary.BigEndian.PutUint64(sum[:8], ms`, `clear(sum[6:])
		binary.BigEndian.PutUint64(sum[:8], ms`,
	}),
	idTime("the latest of several times counts", `latest = max(latest, ms)`, `latest = ms`),
	idTime("random text is not taken for a time", `if ms < end {`, `if true {`),
	idTime("only UUIDs of version 7 have a time", `"xxxxxxxx-xxxx-7xxx-yxxx-xxxxxxxxxxxx"`, `"xxxxxxxx-xxxx-xxxx-yxxx-xxxxxxxxxxxx"`),
	idTime("a part of a longer word is no UUID", `len(s) > len(form) && alphanumeric(s[len(form)])`, `false`),
	idTime("upper and lower case have one time", `if 'A' <= c && c <= 'Z' {`, `if false {`),
	store("a row with the same key hash but another key is a collision, not a duplicate", "internal/claims/stored.go", "a_derived_key_of_another_natural_key_is_a_collision", edit{
		`if stored != key {`, `if stored != key && false {`,
	}),
	store("COMMIT is sent only in the transaction that made the claim", pgx+"/savepoint.go",
		"a_handler_that_ends_or_loses_its_transaction_leaves_no_effect_without_its_claim", edit{
			`	case xid != g.xid:`, `	case xid == "never":`,
		}),
	store("nothing is written after a handler ended its transaction", pgx+"/guard.go",
		"a_handler_that_ends_or_loses_its_transaction_leaves_no_effect_without_its_claim", edit{
			`g.conn.PgConn().TxStatus() == 'I'`, `g.conn.PgConn().TxStatus() == '?'`,
		}),
	store("nothing is committed after the context ended", pgx+"/intx.go", "cancelled_ctx_rolls_back", edit{
		`	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgxstore: not committed`,
		`	if err := ctx.Err(); err != nil && false {
		return fmt.Errorf("pgxstore: not committed`,
	}),
	store("a COMMIT without an answer counts no attempt", pgx+"/intx.go", "commit_outcome_unknown:_answer_lost", edit{
		`return database.Errorf("pgxstore: commit: %w: %w", errCommitUnknown, err)`, `return fmt.Errorf("pgxstore: commit: %w: %w", errCommitUnknown, err)`,
	}),
	store("an error of the schema or of permissions counts no attempt", "internal/faults/postgres.go", "each_error_code_is_retryable_or_not", edit{
		`	"42": deployment,`, `	"4x": deployment,`,
	}),
	store("a statement that is wrong or too slow in itself does not hold up all messages", "internal/faults/postgres.go", "each_error_code_is_retryable_or_not", edit{
		`	"57014": timeLimit,  //`, `	"57014": connection,  //`,
	}),
	store("an error that leaves the outcome of COMMIT open is not reported as a failure of COMMIT", "internal/faults/postgres.go", "each_error_code_of_COMMIT_tells_whether_the_outcome_is_known", edit{
		`return !Undecided(c)`, `return true`,
	}),
	store("a COMMIT that the server refused is not reported as unknown", pgx+"/errors.go", "each_error_code_of_COMMIT_tells_whether_the_outcome_is_known", edit{
		`return ok && faults.CommitRefusedPostgres(`, `return ok && false && faults.CommitRefusedPostgres(`,
	}),
	store("a store serves only one consumer of each name", "internal/names/names.go", "Register_takes_a_name_once_per_node", edit{
		`	case taken:`, `	case false:`,
	}),
	store("a database that may lose commits in a crash is refused", "internal/claims/postgres.go", "Register_refuses_a_database_that_forgets_commits", edit{
		`synchronousCommit == "off" ||`, `synchronousCommit == "never" ||`,
	}),
	store("the error about a schema of another version names it", "internal/claims/register.go", "Register_refuses_another_version_of_the_schema", edit{
		`case worksWith > s.Known:`, `case worksWith > s.Known+100:`,
	}),

	store("a sweeper deletes nothing from tables that need a newer program", pgx+"/purge.go", "a_purge_of_tables_that_need_a_newer_program_forgets_nothing", edit{
		`s.checkSchema(ctx); err != nil { // each time`, `s.resolve(ctx, s.cfg.Pool); err != nil { // each time`,
	}),
	store("a newer schema that still works with this program is accepted", "internal/claims/register.go", "Register_accepts_a_newer_schema_that_works_with_this_program", edit{
		`case worksWith > s.Known:`, `case version > s.Known:`,
	}),
	store("a consumer name with another source of messages is refused", "internal/claims/sources.go", "one_name_for_two_sources_is_refused", edit{
		`if len(recorded) > 0 && len(sources) > 0 &&`, `if false &&`,
	}),
	store("a refused start records no source of messages", pgx+"/sources.go", "Register_refuses_a_database_that_forgets_commits", edit{
		`	if err := s.check(ctx); err != nil {
		return refusedAccess(err)
	}`, `	if err := s.resolve(ctx, s.cfg.Pool); err != nil {
		return err
	}`,
	}),
	store("when two sources register the same name at once, one is accepted", pgx+"/sources.go", "a_source_that_another_process_is_registering_is_waited_for", edit{
		`if _, err := tx.Exec(ctx, s.sql.LockSources, consumer); err != nil {`, `if err := ctx.Err(); err != nil {`,
	}),

	// The horizon.
	store("the horizon is read after the claim", "internal/dialect/postgres.go",
		"a_claim_racing_a_purge_is_duplicate_or_unprovable,_never_new",
		edit{ // the INSERT reads the horizon, and the next statement only returns it
			"IS NOT NULL ELSE true END`",
			"IS NOT NULL ELSE true END\n\tAND set_config('txonce.mutant', coalesce((SELECT forgotten_until::text FROM @txonce_sweep), ''), true) IS NOT NULL`",
		},
		edit{
			"Sweep:     q(`SELECT current_setting('transaction_isolation'), forgotten_until FROM @txonce_sweep`)",
			"Sweep: q(`SELECT current_setting('transaction_isolation'), nullif(current_setting('txonce.mutant'), '')::timestamptz FROM @txonce_sweep`)",
		}),
	store("above READ COMMITTED the horizon is read outside the transaction's snapshot", pgx+"/claim.go", "a_snapshot_older_than_the_purge_does_not_hide_it", edit{
		`if c.isolation != "read committed" && c.isolation != "read uncommitted" {`, `if c.isolation == "none" {`,
	}),
	store("a message older than the horizon is not taken for new", "internal/claims/claim.go", "an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed", edit{
		`if !storekit.Provable(`, `if false && !storekit.Provable(`,
	}),
	store("a message older than the horizon claims nothing", "internal/claims/claim.go", "an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed", edit{
		`if len(unprovable) > 0 {`, `if len(unprovable) > 1000 {`,
	}),
	store("a window is registered under the name of its consumer", "internal/dialect/postgres.go", "an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed", edit{
		`VALUES ($1::text, $2::bigint, clock_timestamp()`, `VALUES ($1::text || ' mutant', $2::bigint, clock_timestamp()`,
	}),
	{
		name: "a claim made after its window's registration expired is rolled back", file: "internal/claims/claim.go",
		edits: []edit{{`if len(c.Inserted) > 0 && !c.covered() {`, `if false {`}},
		pkg:   pgx, run: "TestClaimPastItsRegistration", fails: "TestClaimPastItsRegistration",
	},
	model("with several windows the latest horizon applies", edit{`if h.After(horizon) {`, `if horizon.IsZero() || h.Before(horizon) {`}),
	model("the horizon allows for clocks that are ahead", edit{`u.UsedUntil.Add(dedup.MaxAhead)`, `u.UsedUntil.Add(0 * dedup.MaxAhead)`}),
	model("a message exactly as old as the horizon is not taken for new", edit{`t.After(horizon)`, `!t.Before(horizon)`}),

	// The sweep.
	store("a sweep keeps rows that have not expired", "internal/dialect/postgres.go", "purge_spares_young_rows", edit{
		`AND expires_at <= $4::timestamptz
	LIMIT`, `
	LIMIT`,
	}),
	store("a sweep deletes no more rows than its limit", "internal/dialect/postgres.go", "purge_forgets_no_more_than_its_limit", edit{
		`LIMIT $3::bigint FOR UPDATE`, `LIMIT $3::bigint + 1000000 FOR UPDATE`,
	}),
	store("a sweep deletes nothing while the database's clock is ahead", pgx+"/purge.go", "a_purge_under_a_clock_that_is_ahead_forgets_nothing", edit{
		`ahead := by.ClockAhead(swept.Clock); ahead != nil {`, `ahead := by.ClockAhead(swept.Clock); false {`,
	}, edit{`		return swept, ahead
`, `		return swept, errors.Join(ahead)
`}),
	{
		name: "a sweeper notices that the database's clock jumped ahead", file: "dedup/sweeper.go", pkg: "dedup",
		run: "^TestSweepersRefuseAClockThatJumpsAhead$", fails: "TestSweepersRefuseAClockThatJumpsAhead",
		edits: []edit{{`	if !expected.IsZero() {
`, `	if false {
`}},
	},
	store("a lookup of claimed keys reports only keys that another transaction holds", "internal/dialect/postgres_held.go", "held_keys_are_told_apart_in_one_go", edit{
		`held[i] = all[`, `held[i] = len(all) > 0 || all[`,
	}),
	store("only one sweeper runs at a time", "internal/dialect/postgres.go", "one_sweeper_at_a_time", edit{
		`WHERE owner IS NULL OR owner = $1::text OR lease_until < clock_timestamp() OR lease_until > clock_timestamp() + $2::float8 * interval '1 second'
RETURNING`, `RETURNING`,
	}),
	store("a sweep records the horizon of the keys that it deleted", "internal/dialect/postgres.go", "an_old_message_without_a_row_is_unprovable", edit{
		`forgotten_until = greatest(forgotten_until, $2::timestamptz)`, `forgotten_until = least(forgotten_until, $2::timestamptz - interval '100 years')`,
	}),
	{
		name: "a message is reported as a duplicate only after its claim has reached the standbys", file: pgx + "/claim.go",
		edits: []edit{{`if !c.standbys {`, `if true {`}},
		pkg:   pgx, run: "TestSynchronousStandbyIsCutOff/an_operator_cancels_COMMIT$", fails: "TestSynchronousStandbyIsCutOff",
	},
	{
		name: "if a handler commits and its connection breaks, a new connection finds the commit", file: pgx + "/verify.go",
		edits: []edit{{`	var conn *pgx.Conn
	defer func() {`, `	return false, nil
	var conn *pgx.Conn
	defer func() {`}},
		pkg: pgx, run: "TestHandlerCommitsAndIsCut$", fails: "TestHandlerCommitsAndIsCut",
	},
	{
		name: "if no query can tell whether a handler committed, the outcome stays in doubt", file: pgx + "/verify.go",
		edits: []edit{{`	case asked != nil:
		return g.inDoubt(err)`, `	case asked != nil:
		return err`}},
		pkg: pgx, run: "TestLookBackWithoutAnAnswerIsADoubt$", fails: "TestLookBackWithoutAnAnswerIsADoubt",
	},
	{
		name: "a transaction is verified again after each handler that may have kept the connection", file: pgx + "/verify.go",
		edits: []edit{{`t.g.unverified, t.g.moved = t.g.exposed, false`, `t.g.unverified, t.g.moved = false, false`}},
		pkg:   pgx, run: "TestAKeptConnectionIsProvenAfterEachHandler$", fails: "TestAKeptConnectionIsProvenAfterEachHandler",
	},
	{
		name: "after an error before COMMIT, the store also checks whether the handler committed", file: pgx + "/intx.go",
		edits: []edit{{`	if err := g.finish(ctx); err != nil {
		return g.lookBack(ctx, err)`, `	if err := g.finish(ctx); err != nil {
		return err`}},
		pkg: pgx, run: "TestHandlerCommitsAndIsCut$", fails: "TestHandlerCommitsAndIsCut",
	},
	{
		name: "a first claim without a free connection fails within its timeout", file: pgx + "/store.go",
		edits: []edit{{`	err = s.resolve(limited, s.cfg.Pool)`, `	err = s.resolve(ctx, s.cfg.Pool)
	_ = limited`}},
		pkg: pgx, run: "TestFirstClaimWithoutAFreeConnection$", fails: "TestFirstClaimWithoutAFreeConnection",
	},
	{
		name: "the application's own warnings at COMMIT are not taken for a missing standby", file: pgx + "/commit.go",
		edits: []edit{{` && msg.Routine == "SyncRepWaitForLSN"`, ``}},
		pkg:   pgx, run: "TestCommitWithAWarning$", fails: "TestCommitWithAWarning",
	},
	{
		name: "a COMMIT that may not have reached a standby is not reported as done", file: pgx + "/commit.go",
		edits: []edit{{`if msg.SeverityUnlocalized == "WARNING" && msg.Routine == "SyncRepWaitForLSN" {`, `if false {`}},
		pkg:   pgx, run: "TestSynchronousStandbyIsCutOff/an_operator_cancels_COMMIT$", fails: "TestSynchronousStandbyIsCutOff",
	},
	{
		name: "the next handler of a batch does not run after one that ended the transaction", file: pgx + "/verify.go",
		edits: []edit{{`	verified := !g.unverified && !(another && (g.moved || g.temporary)) || g.xid == ""`, `	verified := true`}},
		pkg:   pgx, run: "TestVerifyTx$", fails: "TestVerifyTx",
	},
	{
		name: "a handler cannot roll back to a savepoint of another handler of the batch", file: pgx + "/savepoint.go",
		edits: []edit{{`	if !g.shared {
		return nil
	}
	g.mu.Lock()`, `	if true {
		return nil
	}
	g.mu.Lock()`}},
		pkg: pgx, run: "TestAHandlerDoesNotReachTheSavepointsOfAnother", fails: "TestAHandlerDoesNotReachTheSavepointsOfAnother",
	},
	{
		name: "every statement in a query string is checked", file: "internal/dialect/control_scan.go",
		edits: []edit{{`strings.IndexAny(rest, "\r\n")`, `strings.IndexAny(rest, "\n")`}},
		pkg:   pgx, run: "TestInspectAgreesWithTheServer", fails: "TestInspectAgreesWithTheServer",
	},
	{
		name: "a session whose settings a handler changed is closed", file: pgx + "/guard.go",
		edits: []edit{{`	if changed || ended {`, `	if ended {`}},
		pkg:   pgx, run: "TestSessionsDoNotLeak", fails: "TestSessionsDoNotLeak",
	},
	{
		name: "a claim refuses a session whose settings were changed outside of handlers", file: pgx + "/session.go",
		edits: []edit{{`case !s.alike(c.sessionState, fresh):`, `case fresh == "":`}},
		pkg:   pgx, run: "TestSessionChangedOutsideOfHandlers", fails: "TestSessionChangedOutsideOfHandlers",
	},
	{
		name: "a handler cannot make COMMIT less durable", file: pgx + "/session.go",
		edits: []edit{{`	if !g.resync || !known || g.store.cfg.AllowAsyncCommit {`, `	if true || !known {`}},
		pkg:   pgx, run: "TestCommitIsDurable", fails: "TestCommitIsDurable",
	},
	{
		name: "statements name the schema of their tables", file: pgx + "/session.go",
		edits: []edit{{`		s.useSchema(schema)`, `		s.useSchema("")`}},
		pkg:   pgx, run: "TestEnqueueNamesItsSchema", fails: "TestEnqueueNamesItsSchema",
	},
	{
		name: "an error of another database is not blamed on this one", file: pgx + "/errors.go",
		edits: []edit{{`	case g.foreign(err):`, `	case false:`}},
		pkg:   pgx, run: "TestBlame$/another_database", fails: "TestBlame",
	},
	{
		name: "an error that ROLLBACK TO SAVEPOINT undid does not fail the transaction", file: pgx + "/guard.go",
		edits: []edit{{`		g.first = nil
	case`, `	case`}},
		pkg: pgx, run: "TestBlame$/a_constraint,_after", fails: "TestBlame",
	},
	{
		name: "a stale prepared plan counts no attempt", file: pgx + "/errors.go",
		edits: []edit{{`pg.Routine == "RevalidateCachedQuery"`, `pg.Routine == "x"`}},
		pkg:   pgx, run: "TestStalePlan", fails: "TestStalePlan",
	},
	{
		name: "a database with an encoding other than UTF8 is refused", file: "internal/claims/postgres.go",
		edits: []edit{{`	case s.encoding != "UTF8":`, `	case s.encoding == "":`}},
		pkg:   pgx, run: "TestRegisterRefusesOtherEncodings", fails: "TestRegisterRefusesOtherEncodings",
	},

	// Handlers that end or change a transaction of sqlstore.
	sqlstore("if a handler commits through database/sql and then fails, the commit is reported", "adapters/sqlstore/verify.go",
		"TestAHandlerThatCommitsAndFailsIsReported/postgres15", edit{`return committed || err != nil`, `return false && (committed || err != nil)`}),
	sqlstore("sqlstore: if the connection breaks, a new connection checks whether the claim was committed", "adapters/sqlstore/verify.go",
		"TestTheClaimIsLookedForWhereTheConnectionIsCut/postgres15", edit{`case failed == nil && committed:`, `case false && committed:`}),
	sqlstore("sqlstore: a handler's commit is reported even if the context has ended", "adapters/sqlstore/store.go", "TestTheEndOfTheContextHidesNoCommit/sqlite", edit{
		`if ctx.Err() != nil && !errors.Is(err, dedup.ErrTxEnded) && !errors.As(err, new(*dedup.InDoubtError)) {`, `if ctx.Err() != nil {`,
	}),
}
