-- The table of migrations/postgres, in the types of MySQL and MariaDB.
CREATE TABLE IF NOT EXISTS audit_ledger (
    id         BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    claim_key  BINARY(16)     NOT NULL,
    consumer   VARBINARY(255) NOT NULL,
    position   TEXT           NOT NULL,
    expires_at BIGINT         NOT NULL,
    KEY audit_ledger_expires (expires_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (5, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
