DELETE FROM txonce_schema WHERE version = 5;
DROP TABLE IF EXISTS audit_ledger;
