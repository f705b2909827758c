-- Explain finds what operators have discarded by its key: the letter itself is gone. claimed: the discard has claimed the key, which no transaction
-- had processed.
ALTER TABLE operator_results ADD COLUMN claim_key uuid, ADD COLUMN claimed boolean NOT NULL DEFAULT false;
CREATE INDEX operator_results_claim ON operator_results (claim_key) WHERE claim_key IS NOT NULL;

INSERT INTO txonce_schema (version, works_with) VALUES (8, 1);
