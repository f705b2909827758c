-- The table of migrations/postgres, in SQLite's types.
CREATE TABLE audit_ledger (
    id         INTEGER NOT NULL PRIMARY KEY,
    claim_key  BLOB    NOT NULL CHECK (length(claim_key) = 16),
    consumer   TEXT    NOT NULL,
    position   TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX audit_ledger_expires ON audit_ledger (expires_at);

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (5, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
