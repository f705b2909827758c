-- The table of migrations/postgres, in SQLite's types.
CREATE TABLE consumer_activity (
    minute   INTEGER NOT NULL,
    consumer TEXT    NOT NULL,
    node     TEXT    NOT NULL,
    counts   TEXT    NOT NULL,
    PRIMARY KEY (minute, consumer, node)
) STRICT, WITHOUT ROWID;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (4, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
