package main

const (
	pgx      = "adapters/pgxstore"
	pgxSuite = "TestStore/postgres15/"
)

// store is a mutation of the store that the case of deduptest.TestStore of that name must notice.
func store(name, file, caseName string, edits ...edit) mutation {
	return mutation{name: name, file: file, edits: edits, pkg: pgx, run: "TestStore/postgres15$/^" + caseName, fails: pgxSuite + caseName}
}

// model is a mutation of the horizon that the property test over a model of many nodes must notice.
func model(name string, edits ...edit) mutation {
	return mutation{name: name, file: "dedup/horizon.go", edits: edits, pkg: "dedup", run: "TestHorizonModel$|TestHorizonModelAtLength|TestProvable", fails: "Test", tries: 3}
}

var storeMutations = []mutation{
	store("a handler's error rolls back", pgx+"/store.go", "rollback_un-claims", edit{
		`		return g.blame(err)`,
		`		_ = s.commit(ctx, tx)
		return g.blame(err)`,
	}),
	store("only the transaction that inserted is first", pgx+"/claim.go", "first_wins", edit{
		`if !c.inserted[row.Derived] {
			found`,
		`if false {
			found`,
	}),
	store("a claim waits no longer than it may", pgx+"/claim.go", "bounded_wait_gives_ErrInFlight_and_frees_the_connection/read_committed", edit{
		`context.WithTimeout(ctx, c.store.cfg.InFlightWait)
	defer cancel()
	err := do(limited)`,
		`context.WithTimeout(ctx, 100*c.store.cfg.InFlightWait)
	defer cancel()
	err := do(limited)`,
	}),
	store("a claim that waited in vain is nobody's fault", pgx+"/errors.go", "bounded_wait_gives_ErrInFlight_and_frees_the_connection/read_committed", edit{
		`return fmt.Errorf("%w, for more than %v", dedup.ErrInFlight`, `return fmt.Errorf("%v, for more than %v", dedup.ErrInFlight`,
	}),
	{
		name: "a frozen process loses its claim", file: "internal/dialect/postgres.go",
		edits: []edit{{"WHEN '0' THEN coalesce($8::text, '0')", "WHEN '0' THEN left($8::text, 0) || '0'"}},
		pkg:   pgx, run: "TestFrozenProcessLosesItsClaim", fails: "TestFrozenProcessLosesItsClaim",
	},
	store("other content under a known key is a mismatch", "internal/claims/plan.go", "mismatch_is_visible", edit{
		`if row.Fingerprint.Matches(rec.Fingerprint) {`, `if true {`,
	}),
	store("keys that concatenate alike are two", "dedup/key.go", "keys_that_concatenate_alike_never_meet", edit{
		`b = binary.AppendUvarint(b, uint64(len(field)))`, `_ = binary.MaxVarintLen16`,
	}),
	store("a row of another natural key is no duplicate", pgx+"/row.go", "a_derived_key_of_another_natural_key_is_a_collision", edit{
		`readable && other != asked[row.key]`, `readable && other != asked[row.key] && false`,
	}),
	store("COMMIT is sent only in the transaction that claimed", pgx+"/guard.go",
		"a_handler_that_ends_or_loses_its_transaction_leaves_no_effect_without_its_claim", edit{
			`	if xid != g.xid {`, `	if false {`,
		}),
	store("nothing is written after the transaction was ended", pgx+"/guard.go",
		"a_handler_that_ends_or_loses_its_transaction_leaves_no_effect_without_its_claim", edit{
			`g.conn.PgConn().TxStatus() == 'I'`, `g.conn.PgConn().TxStatus() == '?'`,
		}),
	store("an ended ctx commits nothing", pgx+"/store.go", "cancelled_ctx_rolls_back", edit{
		`	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgxstore: not committed`,
		`	if err := ctx.Err(); err != nil && false {
		return fmt.Errorf("pgxstore: not committed`,
	}),
	store("a COMMIT without an answer is the database's fault", pgx+"/store.go", "commit_outcome_unknown:_answer_lost", edit{
		`return databaseError{fmt.Errorf("pgxstore: commit: %w", err)}`, `return fmt.Errorf("pgxstore: commit: %w", err)`,
	}),
	store("a bad deployment is the database's fault", "internal/dialect/postgres.go", "each_error_code_is_retryable_or_not", edit{
		`		"42", //`, `		"4x", //`,
	}),
	store("one name, one consumer", "internal/claims/names.go", "Register_takes_a_name_once_per_node", edit{
		`if n.taken[name] {`, `if false {`,
	}),
	store("a database that forgets commits is refused", pgx+"/register.go", "Register_refuses_a_database_that_forgets_commits", edit{
		`case sync == "off",`, `case sync == "never",`,
	}),
	store("a missing schema is named", pgx+"/register.go", "Register_refuses_another_version_of_the_schema", edit{
		`case *version > known:`, `case *version > known+100:`,
	}),

	// The horizon.
	store("how far was forgotten is read after the claim", "internal/dialect/postgres.go",
		"a_claim_racing_a_purge_is_duplicate_or_unprovable,_never_new",
		edit{ // read by the INSERT itself, and only handed over by the statement after it
			"ELSE current_setting('idle_in_transaction_session_timeout') END, true) IS NOT NULL`",
			"ELSE current_setting('idle_in_transaction_session_timeout') END, true) IS NOT NULL\n\tAND set_config('txonce.mutant', coalesce((SELECT forgotten_until::text FROM @txonce_sweep), ''), true) IS NOT NULL`",
		},
		edit{
			"Sweep:     q(`SELECT current_setting('transaction_isolation'), forgotten_until FROM @txonce_sweep`)",
			"Sweep: q(`SELECT current_setting('transaction_isolation'), nullif(current_setting('txonce.mutant'), '')::timestamptz FROM @txonce_sweep`)",
		}),
	store("above READ COMMITTED it is read elsewhere", pgx+"/claim.go", "a_snapshot_older_than_the_purge_does_not_hide_it", edit{
		`if c.isolation != "read committed" && c.isolation != "read uncommitted" {`, `if c.isolation == "none" {`,
	}),
	store("an unprovable message is not new", pgx+"/claim.go", "an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed", edit{
		`if !dedup.Provable(`, `if false && !dedup.Provable(`,
	}),
	store("an unprovable message claims nothing", pgx+"/claim.go", "an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed", edit{
		`if len(unprovable) > 0 {`, `if len(unprovable) > 1000 {`,
	}),
	store("windows are registered under their consumer", "internal/dialect/postgres.go", "an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed", edit{
		`VALUES ($1::text, $2::bigint, clock_timestamp()`, `VALUES ($1::text || ' mutant', $2::bigint, clock_timestamp()`,
	}),
	{
		name: "a claim past its registration is undone", file: pgx + "/claim.go",
		edits: []edit{{`if !c.store.leases.Cover(c.plan.Windows(), c.clock) {`, `if false {`}},
		pkg:   pgx, run: "TestClaimPastItsRegistration", fails: "TestClaimPastItsRegistration",
	},
	model("of several windows the nearest horizon counts", edit{`if h.After(horizon) {`, `if horizon.IsZero() || h.Before(horizon) {`}),
	model("clocks may be ahead", edit{`u.UsedUntil.Add(MaxAhead)`, `u.UsedUntil`}),
	model("a message of the horizon's own time is old", edit{`t.After(horizon)`, `!t.Before(horizon)`}),

	// The sweep.
	store("a sweep spares what has not expired", "internal/dialect/postgres.go", "purge_spares_young_rows", edit{
		`AND expires_at <= clock_timestamp()
	LIMIT`, `
	LIMIT`,
	}),
	store("a sweep is bounded", "internal/dialect/postgres.go", "purge_forgets_no_more_than_its_limit", edit{
		`LIMIT $3::bigint FOR UPDATE`, `LIMIT $3::bigint + 1000000 FOR UPDATE`,
	}),
	store("one sweeper at a time", "internal/dialect/postgres.go", "one_sweeper_at_a_time", edit{
		`WHERE owner IS NULL OR owner = $1::text OR lease_until < clock_timestamp()
RETURNING`, `RETURNING`,
	}),
	store("a sweep writes down how far it forgot", "internal/dialect/postgres.go", "an_old_message_without_a_row_is_unprovable", edit{
		`forgotten_until = greatest(forgotten_until, $2::timestamptz)`, `forgotten_until = least(forgotten_until, $2::timestamptz - interval '100 years')`,
	}),
	{
		name: "a duplicate is as durable as the commit it reports", file: pgx + "/claim.go",
		edits: []edit{{`if duplicates && c.store.flush.Load() {`, `if false {`}},
		pkg:   pgx, run: "TestDuplicateIsAsDurableAsItsCommit", fails: "TestDuplicateIsAsDurableAsItsCommit",
	},
	{
		name: "standbys are looked for without Register too", file: pgx + "/register.go",
		edits: []edit{{"	s.flush.Store(standbys)\n", ""}},
		pkg:   pgx, run: "TestStandbysAreLookedForWithoutRegister", fails: "TestStandbysAreLookedForWithoutRegister",
	},
}
