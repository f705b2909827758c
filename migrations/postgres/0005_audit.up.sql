-- One row for each transaction that has handled one of the keys that consumers with AuditEvery record. claim_key is not unique on purpose: two rows
-- mean that two transactions with the key were committed. Rows outlive their claims, so that a redelivery after the window is noticed.
CREATE TABLE audit_ledger (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    claim_key  uuid             NOT NULL,
    consumer   text COLLATE "C" NOT NULL,
    position   text             NOT NULL,
    expires_at timestamptz      NOT NULL
);
CREATE INDEX audit_ledger_expires ON audit_ledger (expires_at);

INSERT INTO txonce_schema (version, works_with) VALUES (5, 1);
