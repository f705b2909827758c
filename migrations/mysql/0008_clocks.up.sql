-- The columns of migrations/postgres. MySQL has no ADD COLUMN IF NOT EXISTS.
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'txonce_relays' AND column_name = 'set_at') = 0, 'ALTER TABLE txonce_relays ADD COLUMN set_at BIGINT', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'outbox_held' AND column_name = 'set_at') = 0, 'ALTER TABLE outbox_held ADD COLUMN set_at BIGINT', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'outbox_messages' AND column_name = 'failed_at') = 0, 'ALTER TABLE outbox_messages ADD COLUMN failed_at BIGINT', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (8, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
