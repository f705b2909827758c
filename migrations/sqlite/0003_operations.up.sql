-- The tables of migrations/postgres, in SQLite's types.
CREATE TABLE operator_actions (
    id           BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    kind         TEXT    NOT NULL,
    consumer     TEXT    NOT NULL,
    who          TEXT    NOT NULL,
    reason       TEXT    NOT NULL,
    filter       TEXT    NOT NULL,
    new_key      TEXT    NOT NULL,
    as_new       INTEGER NOT NULL,
    rate         REAL    NOT NULL,
    max_failures INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    next_at      INTEGER NOT NULL,
    ended_at     INTEGER,
    note         TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX operator_actions_requested ON operator_actions (requested_at, id);
CREATE INDEX operator_actions_open ON operator_actions (consumer, requested_at) WHERE ended_at IS NULL;

CREATE TABLE operator_results (
    action      BLOB    NOT NULL,
    letter      BLOB    NOT NULL,
    number      INTEGER NOT NULL,
    outcome     TEXT    NOT NULL,
    cause       TEXT    NOT NULL,
    error       TEXT    NOT NULL,
    tries       INTEGER NOT NULL,
    taken_until INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (action, letter)
) STRICT, WITHOUT ROWID;
CREATE INDEX operator_results_number ON operator_results (action, outcome, number);
CREATE INDEX operator_results_letter ON operator_results (letter) WHERE outcome = '';

CREATE TABLE txonce_passes (
    one      INTEGER NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    ended_at INTEGER
) STRICT;
INSERT INTO txonce_passes DEFAULT VALUES;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (3, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
