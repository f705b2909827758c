package main

var claimRows = []row{
	{
		promise: "The handler runs for the first delivery of a key, and not for a later one.",
		in:      "adapters/pgxstore.(*Store).InTx",
		body: `return s.inTxOriginal(ctx, recs, func(tx pgx.Tx, answers []dedup.Claim) error {
			for i := range answers {
				if answers[i].Verdict == dedup.Duplicate {
					answers[i].Verdict = dedup.First
				}
			}
			return fn(tx, answers)
		})`,
		fails: "TestStore/postgres15/first_wins/read_committed in adapters/pgxstore",
	},
	{
		promise: "When the handler returns an error, its effects and its claim are rolled back.",
		in:      "adapters/pgxstore.(*Store).InTx",
		body: `var failed error
		err := s.inTxOriginal(ctx, recs, func(tx pgx.Tx, answers []dedup.Claim) error {
			failed = fn(tx, answers)
			return nil
		})
		if failed != nil {
			return failed
		}
		return err`,
		fails: "TestStore/postgres15/rollback_un-claims in adapters/pgxstore",
	},
	{
		promise: "When the context ends before COMMIT, nothing is committed.",
		in:      "adapters/pgxstore.(*Store).InTx",
		body:    `return s.inTxOriginal(context.WithoutCancel(ctx), recs, fn)`,
		fails:   "TestStore/postgres15/cancelled_ctx_rolls_back in adapters/pgxstore",
	},
	{
		promise: "A COMMIT whose answer is lost is not taken for a failure of the message.",
		in:      "adapters/pgxstore.unknownCommit",
		body:    `return errors.New("pgxstore: commit failed")`,
		fails:   "TestStore/postgres15/commit_outcome_unknown:_answer_lost in adapters/pgxstore",
	},
	{
		promise: "With ClaimLate, nothing is committed unless the claim was inserted.",
		sql:     "internal/dialect.NewPostgres.InsertNew",
		cut:     "SELECT 1 / count(*)",
		put:     "SELECT count(*)",
		fails:   "TestClaimLateWithoutARow in adapters/pgxstore",
	},
	{
		promise: "Statements that Pipeline leaves for COMMIT stay when the handler's next statement cannot be sent.",
		in:      "adapters/pgxstore.(*guard).sendDeferred",
		body: `err := g.sendDeferredOriginal(ctx)
		g.mu.Lock()
		g.late.statements = nil
		g.mu.Unlock()
		return err`,
		fails: "TestDeferredStatements in adapters/pgxstore",
	},
	{
		promise: "With ClaimLate, nothing is committed in a session whose commits may be lost.",
		sql:     "internal/dialect.NewPostgres.InsertNew",
		cut:     "<> $10::text",
		put:     "<> $10::text AND false",
		fails:   "TestClaimLateFindsAChangedSession in adapters/pgxstore",
	},
	{
		promise: "Each claim notes its server, by whatever path it is made: no position moves that rests on another server.",
		in:      "adapters/pgxstore.(*claim).met",
		body:    `c.session, c.noted = stateOf(state), true`,
		fails:   "TestEachClaimNotesItsServer in adapters/pgxstore",
	},
	{
		promise: "sqlstore: each claim notes its server, so that no position moves that rests on another server.",
		in:      "adapters/sqlstore.(claimDriver).Insert",
		body:    `return d.store.claimError(d.store.db.Claims.Claim(ctx, d.claim, rows))`,
		fails:   "TestPostgres/15/each_way_to_claim_meets_the_server in adapters/sqlstore/test",
	},
	{
		promise: "A server moves no position for claims that another server has, or that it had before a restart.",
		sql:     "internal/dialect.postgresPositions",
		cut:     "{PostgresHistory} = CAST(? AS text)",
		put:     "CAST(? AS text) <> ''",
		fails:   "TestAMoveIsMadeByTheServerOfItsHistoryOnly in adapters/pgxstore",
	},
	{
		promise: "A session that was replaced moves no position.",
		sql:     "internal/dialect.postgresPositions",
		cut:     "p.epoch = m.e AND ",
		fails:   "TestPostgres/15/a_position_moves_within_the_bounds_of_its_session in adapters/sqlstore/test",
	},
	{
		promise: "A claim of a key that another transaction holds ends with ErrInFlight after ClaimTimeout.",
		in:      "adapters/pgxstore.(*Store).InTx",
		body: `err := s.inTxOriginal(ctx, recs, fn)
		if errors.Is(err, dedup.ErrInFlight) {
			return context.DeadlineExceeded
		}
		return err`,
		imports: "errors",
		fails:   "TestStore/postgres15/bounded_wait_gives_ErrInFlight_and_frees_the_connection/read_committed in adapters/pgxstore",
	},
	{
		promise: "A process that freezes within a transaction loses its claim after IdleInTxTimeout.",
		sql:     "internal/dialect.idleLimit",
		cut:     "WHEN '0' THEN",
		put:     "WHEN 'never' THEN",
		fails:   "TestTransactionOfADuplicate in adapters/pgxstore",
	},
	{
		promise: "A message with a known key and other content is a mismatch, not a duplicate.",
		in:      "dedup.(Fingerprint).Matches",
		body:    `return true`,
		fails:   "TestStore/postgres15/mismatch_is_visible,_with_the_stored_fingerprint in adapters/pgxstore",
	},
	{
		promise: "Consumer, tenant and ID are separate parts of a key: keys that only look alike when joined never meet.",
		in:      "dedup.(Key).Hash",
		body: `k.ID = k.Consumer + k.Tenant + k.ID
		k.Consumer, k.Tenant = "", ""
		return k.hashOriginal()`,
		fails: "TestStore/postgres15/keys_that_concatenate_alike_never_meet in adapters/pgxstore",
	},
	{
		promise: "The hash of a key never changes between releases.",
		in:      "dedup.(Key).Hash",
		body: `h := k.hashOriginal()
		h[15] ^= 1
		return h`,
		fails: "TestKeyDerive in dedup",
	},
	{
		promise: "A stored row with the same hash and another key is reported as a collision, not as a duplicate.",
		in:      "internal/claims.Collision",
		body:    `return nil`,
		fails:   "TestStore/postgres15/a_derived_key_of_another_business_key_is_a_collision in adapters/pgxstore",
	},
	{
		promise: "A message that is older than the deleted keys is not taken for new.",
		in:      "dedup/driver.Provable",
		body:    `return true`,
		fails:   "TestStore/postgres15/an_old_message_without_a_row_is_unprovable,_and_nothing_is_claimed in adapters/pgxstore",
	},
	{
		promise: "A claim that is made after the registration of its window has expired is rolled back.",
		in:      "internal/claims.(*Claim).covered",
		body:    `return true`,
		fails:   "TestClaimPastItsRegistration in adapters/pgxstore",
	},
	{
		promise: "While a consumer uses several windows, the shortest one decides which messages are too old.",
		in:      "dedup/driver.Horizon",
		body:    `return horizonOriginal(forgotten, uses[:min(1, len(uses))])`,
		fails:   "TestHorizonModel in dedup/driver",
	},
	{
		promise: "When the clocks of machine and database disagree, that is not the message's fault.",
		in:      "dedup/driver.ValidateTime",
		body:    `return nil`,
		fails:   "TestStoreInMemory/clocks_that_disagree_are_not_the_message's_fault in dedup/deduptest",
	},
	{
		promise: "A sweep keeps keys that have not expired.",
		sql:     "internal/dialect.NewPostgres.SweepDelete",
		cut:     " AND expires_at <= $4::timestamptz",
		put:     " AND $4::timestamptz IS NOT NULL",
		fails:   "TestStore/postgres15/purge_spares_young_rows in adapters/pgxstore",
	},
	{
		promise: "A sweep deletes nothing while the database's clock is ahead.",
		in:      "dedup.(Sweep).ClockAhead",
		body:    `return nil`,
		fails:   "TestStore/postgres15/a_purge_under_a_clock_that_is_ahead_forgets_nothing in adapters/pgxstore",
	},
	{
		promise: "Only one sweeper works at a time.",
		sql:     "internal/dialect.NewPostgres.SweepLease",
		cut:     "WHERE owner IS NULL OR ",
		put:     "WHERE true OR ",
		fails:   "TestStore/postgres15/one_sweeper_at_a_time,_and_another_takes_over_when_its_lease_ran_out in adapters/pgxstore",
	},
	{
		promise: "A result that a handler saves with its claim is committed only if the claim still exists.",
		sql:     "internal/dialect.NewPostgres.SaveClaimed",
		cut:     "SELECT 1 / count(*)",
		put:     "SELECT count(*)",
		fails:   "TestSaveResultWithCommit in adapters/pgxstore",
	},
	{
		promise: "A key that a transaction locks with LockKeys keeps other transactions that lock it waiting.",
		in:      "internal/claims.Locks",
		body:    `return nil, nil`,
		fails:   "TestLockExcludes/direct in adapters/pgxstore",
	},
	{
		promise: "An event that is older than what a handler has seen of its object is not newer.",
		sql:     "internal/dialect.NewPostgres.Newer",
		cut:     " WHERE v.version < excluded.version",
		fails:   "TestStore/postgres15/a_version_is_newer_once,_and_an_older_one_never in adapters/pgxstore",
	},
	{
		promise: "MySQL and MariaDB: whether a version is newer does not depend on what the driver counts as a changed row.",
		in:      "adapters/sqlstore/internal/mysql.(*DB).Newer",
		body: `done, err := tx.ExecContext(ctx, d.sql.Newer, object, version, object, version)
		if err != nil {
			return false, err
		}
		counted, err := done.RowsAffected()
		return counted > 0, err`,
		fails: "TestMySQLWhateverTheDSNSays in adapters/sqlstore/test",
	},
	{
		promise: "Handlers that share a transaction write the state of an object in the order of its versions.",
		in:      "adapters/pgxstore.(*keys).Newer",
		body: `if err := k.resolve(ctx, tx); err != nil {
			return false, err
		}
		tag, err := tx.Exec(ctx, k.sql.Newer, object, version)
		return tag.RowsAffected() == 1, stepError("newer", err)`,
		fails: "TestInterleaveKeepsHandlersApartThatLock/Newer in adapters/pgxstore",
	},
}
