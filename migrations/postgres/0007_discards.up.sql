-- Explain finds what operators have discarded by its key: the letter itself is gone. claimed: the discard has claimed the key, which no transaction
-- had processed.
ALTER TABLE operator_results ADD COLUMN claim_key uuid, ADD COLUMN claimed boolean NOT NULL DEFAULT false;
-- lost: how many workers have taken the letter and not returned it, because they ended or still work on it. Such letters are taken after the others.
ALTER TABLE operator_results ADD COLUMN lost integer NOT NULL DEFAULT 0;
DROP INDEX operator_results_number;
CREATE INDEX operator_results_number ON operator_results (action, outcome, lost, number);
CREATE INDEX operator_results_claim ON operator_results (claim_key) WHERE claim_key IS NOT NULL;

INSERT INTO txonce_schema (version, works_with) VALUES (7, 1);
