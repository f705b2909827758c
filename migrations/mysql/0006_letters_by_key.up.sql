-- The index of migrations/postgres, with the beginning of the text. MySQL has no CREATE INDEX IF NOT EXISTS.
SET @txonce_index = IF((SELECT count(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'dead_letters' AND index_name = 'dead_letters_message') = 0, 'CREATE INDEX dead_letters_message ON dead_letters (message_id(191))', 'DO 0');
PREPARE txonce_index FROM @txonce_index;
EXECUTE txonce_index;
DEALLOCATE PREPARE txonce_index;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (6, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
