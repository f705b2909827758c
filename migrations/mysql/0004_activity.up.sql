-- The table of migrations/postgres, in the types of MySQL and MariaDB.
CREATE TABLE IF NOT EXISTS consumer_activity (
    minute   BIGINT         NOT NULL,
    consumer VARBINARY(255) NOT NULL,
    node     VARCHAR(255)   NOT NULL,
    counts   TEXT           NOT NULL,
    PRIMARY KEY (minute, consumer, node)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (4, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
