-- The columns of migrations/postgres.
ALTER TABLE txonce_relays ADD COLUMN set_at INTEGER;
ALTER TABLE outbox_held ADD COLUMN set_at INTEGER;
ALTER TABLE outbox_messages ADD COLUMN failed_at INTEGER;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (8, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
