-- The columns of migrations/postgres.
ALTER TABLE operator_results ADD COLUMN claim_key BLOB;
ALTER TABLE operator_results ADD COLUMN claimed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE operator_results ADD COLUMN lost INTEGER NOT NULL DEFAULT 0;
DROP INDEX operator_results_number;
CREATE INDEX operator_results_number ON operator_results (action, outcome, lost, number);
CREATE INDEX operator_results_claim ON operator_results (claim_key) WHERE claim_key IS NOT NULL;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (7, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
