-- The column of migrations/postgres.
ALTER TABLE operator_actions ADD COLUMN counts TEXT NOT NULL DEFAULT '';

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (6, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
