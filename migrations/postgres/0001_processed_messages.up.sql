-- One row per key that a consumer has processed. It is inserted by the transaction that writes the effect.
-- key is the only index: 16 bytes derived from (consumer, tenant, id). Columns that may be NULL cost nothing while they are.
CREATE TABLE processed_messages (
    key         uuid        NOT NULL PRIMARY KEY,
    expires_at  timestamptz NOT NULL,
    fingerprint bigint,
    consumer    text COLLATE "C",
    tenant      text COLLATE "C",
    id          text COLLATE "C",
    result      bytea
);

-- The windows that consumers have run with, each recorded before the first claim under it.
CREATE TABLE txonce_windows (
    consumer       text COLLATE "C" NOT NULL,
    window_seconds bigint           NOT NULL,
    first_run      timestamptz      NOT NULL,
    used_until     timestamptz      NOT NULL,
    PRIMARY KEY (consumer, window_seconds)
);

-- Where each consumer's messages come from: a queue, or a topic of a consumer group. Two services under one name would take each
-- other's messages for duplicates. The row with an empty source is there to be locked while the others are compared.
CREATE TABLE txonce_sources (
    consumer  text COLLATE "C" NOT NULL,
    source    text COLLATE "C" NOT NULL,
    first_run timestamptz      NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, source)
);

-- One row, made here and never again: a sweep only updates it, because a row inserted later would be invisible to
-- older snapshots. forgotten_until is the latest expires_at of all rows forgotten so far; NULL: none was.
CREATE TABLE txonce_sweep (
    one             boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    forgotten_until timestamptz,
    owner           text,
    lease_until     timestamptz,
    next_page       bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO txonce_sweep DEFAULT VALUES;

-- Messages given up on, where they wait for a person. What came as bytes is kept as bytes.
CREATE TABLE dead_letters (
    id           uuid             NOT NULL PRIMARY KEY,
    key          uuid,
    consumer     text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C",
    message_id   text COLLATE "C",
    fingerprint  bigint,
    window_seconds bigint         NOT NULL,
    message_time timestamptz,
    cause        text             NOT NULL,
    error        text             NOT NULL,
    topic        text             NOT NULL,
    ordering_key bytea,
    position     text             NOT NULL,
    payload      bytea            NOT NULL,
    headers      json             NOT NULL,
    attempts     integer          NOT NULL,
    times        integer          NOT NULL DEFAULT 1,
    first_parked timestamptz      NOT NULL DEFAULT clock_timestamp(),
    last_parked  timestamptz      NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX dead_letters_consumer ON dead_letters (consumer, first_parked, id);

-- What is installed. A store checks it at start. A program that knows no version above works_with still works with this one.
CREATE TABLE txonce_schema (
    version    integer     NOT NULL PRIMARY KEY,
    works_with integer     NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO txonce_schema (version, works_with) VALUES (1, 1);
