-- The tables of migrations/postgres, in SQLite's types. The one row of outbox_seq replaces the sequence.
CREATE TABLE outbox_seq (
    one  INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    last INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO outbox_seq DEFAULT VALUES;

CREATE TABLE outbox_messages (
    shard       INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    key         BLOB,
    payload     BLOB    NOT NULL,
    headers     TEXT,
    enqueued_at INTEGER NOT NULL,
    not_before  INTEGER,
    attempts    INTEGER NOT NULL DEFAULT 0,
    retry_at    INTEGER,
    error       TEXT,
    PRIMARY KEY (shard, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox_delayed (
    not_before  INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    shard       INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    key         BLOB,
    payload     BLOB    NOT NULL,
    headers     TEXT,
    enqueued_at INTEGER NOT NULL,
    PRIMARY KEY (not_before, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox_held (
    shard    INTEGER NOT NULL,
    key      BLOB    NOT NULL,
    from_seq INTEGER NOT NULL,
    until    INTEGER,            -- NULL: for a person
    park     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox_parked (
    seq         INTEGER NOT NULL PRIMARY KEY,
    shard       INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    key         BLOB,
    payload     BLOB    NOT NULL,
    headers     TEXT,
    enqueued_at INTEGER NOT NULL,
    not_before  INTEGER,
    attempts    INTEGER NOT NULL,
    error       TEXT    NOT NULL,
    behind      INTEGER,
    waiting     INTEGER NOT NULL DEFAULT 0,
    keep_order  INTEGER NOT NULL DEFAULT 0,
    parked_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_parked_key ON outbox_parked (shard, key, seq) WHERE key IS NOT NULL;

CREATE TABLE outbox_sent (
    sent_at     INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    topic       TEXT    NOT NULL,
    key         BLOB,
    payload     BLOB    NOT NULL,
    headers     TEXT,
    enqueued_at INTEGER NOT NULL,
    PRIMARY KEY (sent_at, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE txonce_relays (
    owner BLOB    NOT NULL PRIMARY KEY CHECK (length(owner) = 16),
    name  TEXT    NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE txonce_shards (
    shard INTEGER NOT NULL PRIMARY KEY,
    owner BLOB,
    token INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO txonce_shards (shard)
WITH RECURSIVE n(shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM n WHERE shard < 63) SELECT shard FROM n;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (2, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
