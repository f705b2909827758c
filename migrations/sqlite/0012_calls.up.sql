-- The table of migrations/postgres, in SQLite's types.
CREATE TABLE txonce_calls (
    call_key    BLOB    NOT NULL PRIMARY KEY CHECK (length(call_key) = 16),
    fingerprint INTEGER NOT NULL,
    first_try   INTEGER NOT NULL,
    last_try    INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    unanswered  INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    verdict     INTEGER NOT NULL,
    result      BLOB
) STRICT, WITHOUT ROWID;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (12, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
