-- The columns of migrations/postgres. note keeps the payload of a repair in base64, and TEXT ends at 64 KiB. MySQL has no ADD COLUMN IF NOT EXISTS.
ALTER TABLE operator_actions MODIFY COLUMN note MEDIUMTEXT NOT NULL;
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'operator_results' AND column_name = 'claim_key') = 0, 'ALTER TABLE operator_results ADD COLUMN claim_key BINARY(16), ADD COLUMN claimed TINYINT NOT NULL DEFAULT 0, ADD KEY operator_results_claim (claim_key), ADD COLUMN lost INT NOT NULL DEFAULT 0, DROP KEY operator_results_number, ADD KEY operator_results_number (action, outcome, lost, number)', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (7, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
