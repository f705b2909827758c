DROP INDEX operator_results_claim;
ALTER TABLE operator_results DROP COLUMN claim_key;
ALTER TABLE operator_results DROP COLUMN claimed;
DELETE FROM txonce_schema WHERE version = 8;
