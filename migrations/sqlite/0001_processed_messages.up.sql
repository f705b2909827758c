-- The tables of migrations/postgres, in SQLite's types: keys are 16-byte blobs, times are microseconds since 1970 UTC.
CREATE TABLE processed_messages (
    key         BLOB    NOT NULL PRIMARY KEY CHECK (length(key) = 16),
    expires_at  INTEGER NOT NULL,
    fingerprint INTEGER,
    consumer    TEXT,
    tenant      TEXT,
    id          TEXT,
    result      BLOB
) STRICT, WITHOUT ROWID;

CREATE TABLE txonce_windows (
    consumer       TEXT    NOT NULL,
    window_seconds INTEGER NOT NULL,
    first_run      INTEGER NOT NULL,
    used_until     INTEGER NOT NULL,
    PRIMARY KEY (consumer, window_seconds)
) STRICT, WITHOUT ROWID;

CREATE TABLE txonce_sources (
    consumer  TEXT    NOT NULL,
    source    TEXT    NOT NULL,
    first_run INTEGER NOT NULL,
    PRIMARY KEY (consumer, source)
) STRICT, WITHOUT ROWID;

CREATE TABLE txonce_sweep (
    one             INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    forgotten_until INTEGER,
    owner           TEXT,
    lease_until     INTEGER,
    next_key        BLOB
) STRICT;
INSERT INTO txonce_sweep DEFAULT VALUES;

CREATE TABLE dead_letters (
    id             BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    key            BLOB,
    consumer       TEXT    NOT NULL,
    tenant         TEXT,
    message_id     TEXT,
    fingerprint    INTEGER,
    window_seconds INTEGER NOT NULL,
    message_time   INTEGER,
    cause          TEXT    NOT NULL,
    error          TEXT    NOT NULL,
    topic          TEXT    NOT NULL,
    ordering_key   BLOB,
    position       TEXT    NOT NULL,
    payload        BLOB    NOT NULL,
    headers        TEXT    NOT NULL,
    attempts       INTEGER NOT NULL,
    times          INTEGER NOT NULL DEFAULT 1,
    first_parked   INTEGER NOT NULL,
    last_parked    INTEGER NOT NULL
) STRICT;
CREATE INDEX dead_letters_consumer ON dead_letters (consumer, first_parked, id);

CREATE TABLE txonce_schema (
    version    INTEGER NOT NULL PRIMARY KEY,
    works_with INTEGER NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (1, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
