DROP TABLE audit_ledger;
DELETE FROM txonce_schema WHERE version = 5;
