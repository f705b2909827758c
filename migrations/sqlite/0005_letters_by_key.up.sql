-- The index of migrations/postgres. The letters of a consumer are counted and filtered by cause in the index alone: a search for each
-- row would take most of the time.
CREATE INDEX dead_letters_message ON dead_letters (message_id);
DROP INDEX dead_letters_consumer;
CREATE INDEX dead_letters_consumer ON dead_letters (consumer, first_parked, id, cause, last_parked);

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (5, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
