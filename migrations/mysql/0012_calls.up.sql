-- The table of migrations/postgres, in the types of MySQL and MariaDB.
CREATE TABLE IF NOT EXISTS txonce_calls (
    call_key    BINARY(16) NOT NULL PRIMARY KEY,
    fingerprint BIGINT     NOT NULL,
    first_try   BIGINT     NOT NULL,
    last_try    BIGINT     NOT NULL,
    until       BIGINT     NOT NULL,
    unanswered  INT        NOT NULL,
    token       BIGINT     NOT NULL,
    verdict     TINYINT    NOT NULL,
    result      LONGBLOB
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (12, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
