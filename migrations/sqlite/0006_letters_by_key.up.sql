-- The index of migrations/postgres.
CREATE INDEX dead_letters_message ON dead_letters (message_id);

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (6, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
