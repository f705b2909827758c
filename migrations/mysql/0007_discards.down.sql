-- note stays wide: it may have a repair that TEXT cannot keep.
DELETE FROM txonce_schema WHERE version = 7;
SET @txonce_column = IF((SELECT count(*) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'operator_results' AND column_name = 'claim_key') > 0, 'ALTER TABLE operator_results DROP KEY operator_results_claim, DROP COLUMN claim_key, DROP COLUMN claimed, DROP KEY operator_results_number, DROP COLUMN lost, ADD KEY operator_results_number (action, outcome, number)', 'DO 0');
PREPARE txonce_column FROM @txonce_column;
EXECUTE txonce_column;
DEALLOCATE PREPARE txonce_column;
