-- The table of migrations/postgres, in SQLite's types.
CREATE TABLE entity_versions (
    object     TEXT    NOT NULL PRIMARY KEY,
    version    INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (9, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
