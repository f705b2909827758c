-- Messages that are committed and not yet confirmed by their broker. They are leased by state, shard by shard, in the order of
-- seq, which is assigned late in each transaction. Rows keep the shard that their key had when they were written.
CREATE SEQUENCE outbox_seq AS bigint CACHE 1; -- a larger cache hands out numbers in another order than that of transactions

-- Which generation of outbox_messages takes what comes. A sequence, because it is one number that is changed in place, whatever
-- old transaction is open; nothing depends on where a message stands.
CREATE SEQUENCE outbox_generation AS smallint MINVALUE 0 MAXVALUE 3 START 0 CYCLE CACHE 1;
SELECT nextval('outbox_generation');
CREATE TABLE outbox_messages (
    shard       smallint         NOT NULL,
    seq         bigint           NOT NULL DEFAULT nextval('outbox_seq'),
    generation  smallint         NOT NULL DEFAULT pg_sequence_last_value('outbox_generation'),
    id          text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    key         bytea,                     -- NULL: no order
    payload     bytea            NOT NULL,
    headers     json,                      -- NULL: none
    enqueued_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    not_before  timestamptz,               -- when it was due, of a message that was enqueued to come later
    attempts    integer          NOT NULL DEFAULT 0,
    retry_at    timestamptz,               -- of a message without key that failed; keys are held back in outbox_held
    cause       text,                      -- of the last failure
    PRIMARY KEY (shard, seq, generation)
) PARTITION BY LIST (generation);
CREATE TABLE outbox_messages_0 PARTITION OF outbox_messages FOR VALUES IN (0);
CREATE TABLE outbox_messages_1 PARTITION OF outbox_messages FOR VALUES IN (1);
CREATE TABLE outbox_messages_2 PARTITION OF outbox_messages FOR VALUES IN (2);
CREATE TABLE outbox_messages_3 PARTITION OF outbox_messages FOR VALUES IN (3);

-- Messages whose not_before had not come when they were enqueued. They get a new seq when it has.
CREATE TABLE outbox_delayed (
    not_before  timestamptz      NOT NULL,
    seq         bigint           NOT NULL DEFAULT nextval('outbox_seq'),
    shard       smallint         NOT NULL,
    id          text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    key         bytea,
    payload     bytea            NOT NULL,
    headers     json,
    enqueued_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (not_before, seq)
);

-- Keys that are held back: messages of the key with a seq of at least from_seq wait until then. 'infinity': for a person.
CREATE TABLE outbox_held (
    shard    smallint    NOT NULL,
    key      bytea       NOT NULL,
    from_seq bigint      NOT NULL,
    until    timestamptz NOT NULL,
    park     boolean     NOT NULL DEFAULT false, -- later messages are parked, not only kept waiting
    PRIMARY KEY (shard, key)
);

-- Messages given up on, and those that stand behind one of them. They are out of outbox_messages so that a key that stands still
-- costs the others nothing.
CREATE TABLE outbox_parked (
    seq         bigint           NOT NULL PRIMARY KEY,
    shard       smallint         NOT NULL,
    id          text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    key         bytea,
    payload     bytea            NOT NULL,
    headers     json,
    enqueued_at timestamptz      NOT NULL,
    not_before  timestamptz,               -- when it was due, of a message that was enqueued to come later
    attempts    integer          NOT NULL,
    cause       text             NOT NULL,
    behind      bigint,                    -- seq of the one that was given up on; NULL: this one was
    waiting     boolean          NOT NULL DEFAULT false, -- goes on by itself when that one does
    keep_order  smallint         NOT NULL DEFAULT 0, -- what becomes of the key's later messages: 0 they wait, 1 are parked, 2 pass
    parked_at   timestamptz      NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX outbox_parked_key ON outbox_parked (shard, key, seq) WHERE key IS NOT NULL AND NOT waiting AND keep_order < 2;
CREATE INDEX outbox_parked_waiting ON outbox_parked (shard, key, seq) WHERE waiting;

-- What was confirmed, where the user keeps it for a time.
CREATE TABLE outbox_sent (
    sent_at     timestamptz      NOT NULL DEFAULT clock_timestamp(),
    seq         bigint           NOT NULL,
    id          text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    key         bytea,
    payload     bytea            NOT NULL,
    headers     json,
    enqueued_at timestamptz      NOT NULL,
    PRIMARY KEY (sent_at, seq)
);

-- Living relays, one row each, and who holds which shard. A shard is free when its owner is NULL or has no row with an
-- until in the future. token counts takeovers: a completion that shows an older one changes nothing.
CREATE TABLE txonce_relays (
    owner uuid        NOT NULL PRIMARY KEY,
    name  text        NOT NULL,
    until timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE txonce_shards (
    shard    smallint NOT NULL PRIMARY KEY,
    owner    uuid,
    token    bigint   NOT NULL DEFAULT 0,
    returned bigint   NOT NULL DEFAULT 0 -- how often messages came back with an old seq
) WITH (fillfactor = 50);
INSERT INTO txonce_shards (shard) SELECT generate_series(0, 63); -- their number never changes while there are messages

-- WAL mode: the replication slot that carries this outbox's messages. One row, written when the slot is created, before the
-- first message is emitted, and again only by a person's decision or a takeover: every Enqueue reads it, so that it must not
-- collect dead versions. system, timeline and home tell a restored, promoted or copied database from the one whose slot it is.
CREATE TABLE txonce_slots (
    one      boolean          NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    slot     text COLLATE "C" NOT NULL,           -- its name, and that of its publication
    system   bigint           NOT NULL,           -- pg_control_system()
    started  timestamptz      NOT NULL,           -- the start of the server on which system was last compared
    timeline text COLLATE "C" NOT NULL,           -- as in names of WAL files
    home     oid              NOT NULL,           -- of this table
    created  pg_lsn           NOT NULL,           -- nothing before it was in the slot
    owner    uuid,                                -- the relay that reads it; alive if txonce_relays says so
    token    bigint           NOT NULL DEFAULT 0
);

-- Up to where the slot may have been confirmed, as a byte position in the WAL. It is written just before the slot is
-- told, so that a slot that is further has been recreated, or advanced by somebody else. A sequence, because it is seen by all
-- snapshots at once and leaves no dead versions.
CREATE SEQUENCE txonce_slot_confirmed AS bigint MINVALUE 0 START 0 CACHE 1;

-- Messages of transactions beyond that position of which nothing more is to be done for the stream: confirmed by the broker, or
-- spilled to the tables above. When the stream brings them again, after a crash, they are passed over.
CREATE TABLE txonce_slot_settled (
    seq  bigint   NOT NULL PRIMARY KEY,
    also bigint[] NOT NULL DEFAULT '{}', -- settled together with seq
    lsn  pg_lsn   NOT NULL               -- of the last commit among theirs: the row is done with once that is confirmed
);
CREATE INDEX txonce_slot_settled_lsn ON txonce_slot_settled (lsn);

INSERT INTO txonce_schema (version, works_with) VALUES (2, 1);
