DELETE FROM txonce_schema WHERE version = 6;
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'operator_actions' AND column_name = 'counts') > 0, 'ALTER TABLE operator_actions DROP COLUMN counts', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;
