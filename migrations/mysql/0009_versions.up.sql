-- The table of migrations/postgres, in the types of MySQL and MariaDB. changed_at is NULL only within a statement.
CREATE TABLE IF NOT EXISTS entity_versions (
    object     VARBINARY(1024) NOT NULL PRIMARY KEY,
    version    BIGINT          NOT NULL,
    changed_at BIGINT
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (9, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
