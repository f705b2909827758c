-- The database's clock at the last sweep. NULL: none since this migration.
ALTER TABLE txonce_sweep ADD COLUMN clock timestamptz;

-- Keys are deleted only by who records up to when they were forgotten: a redelivery of a key that is gone without a record would run again.
-- txonce's own statements carry a mark, the transaction's id, which is good for one statement.
-- +goose StatementBegin
CREATE FUNCTION txonce_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
    IF pg_catalog.current_setting('txonce.sweep', true) OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id()::pg_catalog.text THEN
        PERFORM pg_catalog.set_config('txonce.sweep', '', true);
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'txonce: % of %.% is refused: messages whose keys are deleted without a record would run again when they are delivered again',
            TG_OP, pg_catalog.quote_ident(TG_TABLE_SCHEMA), TG_TABLE_NAME
        USING HINT = CASE
            WHEN TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN 'To empty a test database, in one transaction with the TRUNCATE: SELECT set_config(''txonce.sweep'', pg_current_xact_id()::text, true). Anywhere else set the horizon first: txonce horizon set. See docs/operations.md, "Cleanups by others".'
            ELSE pg_catalog.format('To delete expired keys: CALL %I.txonce_sweep(''1 minute''). See docs/operations.md, "Cleanups by others".', TG_TABLE_SCHEMA)
        END;
END
$guard$;
-- +goose StatementEnd

CREATE TRIGGER txonce_guard BEFORE DELETE OR TRUNCATE ON processed_messages FOR EACH STATEMENT EXECUTE FUNCTION txonce_guard();

-- What dedup.Sweeper does, for pg_cron and psql: it deletes expired keys until the end of the table, or until time_limit is over; the next
-- call goes on from there. It takes the lease that Sweepers take, works in short transactions of its own, and rests six times as long as it
-- works. clock_jump is how far the clock may be ahead of the last sweep. The last parameter finds the schema whatever search_path is: leave
-- it out.
-- +goose StatementBegin
CREATE PROCEDURE txonce_sweep(
    time_limit interval DEFAULT '1 minute',
    clock_jump interval DEFAULT '26 hours',
    INOUT keys bigint DEFAULT 0,
    INOUT done boolean DEFAULT false,
    claims regclass DEFAULT 'processed_messages'::regclass
) LANGUAGE plpgsql AS $sweep$
DECLARE
    until   timestamptz;
    place   text; -- the schema
    clock   timestamptz;
    last    timestamptz; -- the clock of the last sweep
    holder  text;        -- of the lease
    page    bigint;
    pages   bigint;
    gone    bigint;
    latest  timestamptz;
    over    boolean := false;
    rest    float8;
BEGIN
    COMMIT; -- within a transaction block it fails here, before anything was done
    keys := 0; -- whatever was passed
    done := false;
    LOOP
        -- The session's search_path comes back with each COMMIT. After a COMMIT only variables and qualified names are used.
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        IF time_limit IS NULL OR clock_jump IS NULL OR time_limit < '0' OR clock_jump < '0' THEN
            RAISE EXCEPTION 'txonce_sweep: time_limit and clock_jump must not be negative or NULL';
        ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'txonce_sweep: the isolation level is %: a sweep would fail on each row that another transaction changes',
                    current_setting('transaction_isolation')
                USING HINT = 'SET default_transaction_isolation = ''read committed''';
        ELSIF current_setting('statement_timeout') <> '0' AND current_setting('statement_timeout')::interval < time_limit THEN
            RAISE EXCEPTION 'txonce_sweep: statement_timeout % would end the call before its time_limit of %',
                    current_setting('statement_timeout'), time_limit
                USING HINT = 'Pass a shorter time_limit, or SET statement_timeout = 0.';
        END IF;
        PERFORM set_config('lock_timeout', '2s', true);
        clock := clock_timestamp();
        IF place IS NULL THEN
            until := clock + time_limit;
            SELECT quote_ident(n.nspname) INTO place FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = claims;
        END IF;

        EXECUTE format($sql$
            UPDATE %s.txonce_sweep SET owner = 'txonce_sweep', lease_until = $1 + interval '5 minutes'
            WHERE owner IS NULL OR owner = 'txonce_sweep' OR lease_until < $1 OR lease_until > $1 + interval '5 minutes'
            RETURNING clock, next_page, pg_relation_size($2) / current_setting('block_size')::bigint
            $sql$, place) INTO last, page, pages USING clock, claims;
        IF page IS NULL THEN
            EXECUTE format('SELECT owner, lease_until FROM %s.txonce_sweep', place) INTO holder, last;
            RAISE NOTICE 'txonce_sweep: nothing was done: the sweeper % has the lease until %', holder, last
                USING HINT = 'If that sweeper runs, it deletes the expired keys, and you need not do anything. If it has ended, call again after that time.';
            EXIT;
        ELSIF clock > last + clock_jump THEN
            RAISE EXCEPTION 'txonce_sweep: the clock shows %, and the last sweep was at %: if the clock has jumped ahead, keys would expire too early',
                    clock, last
                USING HINT = format('If the clock is right: CALL %s.txonce_sweep(''1 minute'', clock_jump => %L)', place, clock - last + interval '1 hour');
        END IF;

        IF page >= pages THEN
            page := 0; -- the table was truncated or rewritten since the last sweep
        END IF;
        PERFORM set_config('txonce.sweep', pg_current_xact_id()::text, true);
        EXECUTE format($sql$
            WITH expired AS (
                SELECT ctid FROM %1$s.processed_messages
                WHERE ctid >= $1 AND ctid < $2 AND expires_at <= $3 LIMIT 5000 FOR UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM %1$s.processed_messages WHERE ctid = ANY(ARRAY(SELECT ctid FROM expired)) RETURNING expires_at
            ) SELECT count(*), max(expires_at) FROM gone
            $sql$, place) INTO gone, latest
            USING format('(%s,0)', page)::tid, format('(%s,0)', page + 32)::tid, clock;
        keys := keys + gone;
        IF gone < 5000 THEN -- otherwise these pages may hold more expired rows
            page := page + 32;
        END IF;
        done := page >= pages;
        IF done THEN
            page := 0;
            EXECUTE format($sql$
                DELETE FROM %1$s.dead_letters WHERE id IN (
                    SELECT d.id FROM %1$s.dead_letters d JOIN %1$s.processed_messages p ON p.key = d.key
                    WHERE d.cause <> 'outcome_unknown' AND (p.fingerprint = d.fingerprint OR p.fingerprint IS NULL OR d.fingerprint IS NULL)
                    LIMIT 5000 FOR UPDATE OF d SKIP LOCKED)
                $sql$, place);
            EXECUTE format('UPDATE %s.txonce_passes SET ended_at = clock_timestamp()', place);
        END IF;
        EXECUTE format('UPDATE %s.txonce_sweep SET next_page = $1, forgotten_until = greatest(forgotten_until, $2), clock = $3', place)
            USING page, latest, clock;
        over := done OR clock_timestamp() >= until;
        rest := greatest(6 * extract(epoch FROM clock_timestamp() - clock), 0.005);
        rest := greatest(least(rest, extract(epoch FROM until - clock_timestamp())), 0);
        COMMIT;
        EXIT WHEN over;
        PERFORM pg_catalog.pg_sleep(rest);
    END LOOP;
END
$sweep$;
-- +goose StatementEnd

INSERT INTO txonce_schema (version, works_with) VALUES (11, 11);
