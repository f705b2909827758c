-- The index of migrations/postgres, with the beginning of the text. The letters of a consumer are counted and filtered by cause in the index
-- alone: a search for each row would take most of the time. MySQL has no CREATE INDEX IF NOT EXISTS; one ALTER TABLE is atomic.
SET @txonce_index = IF((SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'dead_letters' AND index_name = 'dead_letters_message') = 0, 'ALTER TABLE dead_letters ADD KEY dead_letters_message (message_id(191)), DROP KEY dead_letters_consumer, ADD KEY dead_letters_consumer (consumer, first_parked, id, cause, last_parked)', 'DO 0');
PREPARE txonce_index FROM @txonce_index;
EXECUTE txonce_index;
DEALLOCATE PREPARE txonce_index;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (5, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
