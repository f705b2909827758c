DROP INDEX operator_results_claim;
DROP INDEX operator_results_number;
ALTER TABLE operator_results DROP COLUMN claim_key, DROP COLUMN claimed, DROP COLUMN lost;
CREATE INDEX operator_results_number ON operator_results (action, outcome, number);
DELETE FROM txonce_schema WHERE version = 7;
