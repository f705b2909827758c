-- Messages that are committed and not yet confirmed by their broker. They are leased by state, shard by shard, in the order of
-- seq, which is assigned late in each transaction. Rows keep the shard that their key had when they were written.
CREATE SEQUENCE outbox_seq AS bigint CACHE 1; -- a larger cache hands out numbers in another order than that of transactions

CREATE TABLE outbox_messages (
    shard       smallint         NOT NULL,
    seq         bigint           NOT NULL DEFAULT nextval('outbox_seq'),
    id          text COLLATE "C" NOT NULL,
    topic       text COLLATE "C" NOT NULL,
    key         bytea,                     -- NULL: no order
    payload     bytea            NOT NULL,
    headers     json,                      -- NULL: none
    enqueued_at timestamptz      NOT NULL DEFAULT clock_timestamp(),
    not_before  timestamptz,               -- when it was due, of a message that was enqueued to come later
    attempts    integer          NOT NULL DEFAULT 0,
    retry_at    timestamptz,               -- of a message without key that failed; keys are held back in outbox_held
    error       text,                      -- of the last failure
    PRIMARY KEY (shard, seq)
);

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

-- Keys that are held back: messages of the key with a seq of at least from_seq wait until then. A key may have two holds: one after a failure, and
-- an endless one behind a parked message, which waits for a person.
CREATE TABLE outbox_held (
    shard    smallint    NOT NULL,
    key      bytea       NOT NULL,
    from_seq bigint      NOT NULL,
    until    timestamptz NOT NULL,
    park     boolean     NOT NULL DEFAULT false, -- later messages are parked, not only kept waiting
    endless  boolean     NOT NULL GENERATED ALWAYS AS (until = 'infinity') STORED,
    PRIMARY KEY (shard, key, endless)
);

-- Messages that were given up, and those that wait behind one of them. They are out of outbox_messages so that a key that waits
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
    error       text             NOT NULL,
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

INSERT INTO txonce_schema (version, works_with) VALUES (2, 1);
