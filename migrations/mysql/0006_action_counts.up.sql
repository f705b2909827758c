-- The column of migrations/postgres. MySQL has no ADD COLUMN IF NOT EXISTS.
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'operator_actions' AND column_name = 'counts') = 0, 'ALTER TABLE operator_actions ADD COLUMN counts VARCHAR(255) NOT NULL DEFAULT ''''', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (6, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
