-- The tables of migrations/postgres, in the types of MySQL and MariaDB: keys are 16 bytes, times are microseconds since 1970 UTC,
-- as no other type is free of the session's time zone and the driver's settings. Names are compared byte by byte.
--
-- DDL commits here, so that a file may be applied halfway. Every statement may therefore run twice, and a table says in its
-- comment whose it is. A statement ends at the end of a line.
CREATE TABLE IF NOT EXISTS processed_messages (
    `key`       BINARY(16) NOT NULL,
    token       BINARY(8)  NOT NULL, -- of the claim that inserted the row: nothing else tells an insert from a duplicate
    expires_at  BIGINT     NOT NULL,
    fingerprint BIGINT,
    consumer    VARCHAR(255),
    tenant      VARCHAR(255),
    id          VARCHAR(1024),
    result      LONGBLOB,
    PRIMARY KEY (`key`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_windows (
    consumer       VARBINARY(255) NOT NULL,
    window_seconds BIGINT         NOT NULL,
    first_run      BIGINT         NOT NULL,
    used_until     BIGINT         NOT NULL,
    PRIMARY KEY (consumer, window_seconds)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_sources (
    consumer  VARBINARY(255)  NOT NULL,
    source    VARBINARY(1024) NOT NULL,
    first_run BIGINT          NOT NULL,
    PRIMARY KEY (consumer, source)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_sweep (
    one             TINYINT NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    forgotten_until BIGINT,
    owner           VARBINARY(1024),
    lease_until     BIGINT,
    next_key        BINARY(16)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';
INSERT INTO txonce_sweep (one) VALUES (1) ON DUPLICATE KEY UPDATE one = one;

CREATE TABLE IF NOT EXISTS dead_letters (
    id             BINARY(16)   NOT NULL PRIMARY KEY,
    `key`          BINARY(16),
    consumer       VARCHAR(255) NOT NULL,
    tenant         TEXT,
    message_id     TEXT,
    fingerprint    BIGINT,
    window_seconds BIGINT       NOT NULL,
    message_time   BIGINT,
    cause          VARCHAR(255) NOT NULL,
    error          TEXT         NOT NULL,
    topic          TEXT         NOT NULL,
    ordering_key   LONGBLOB,
    position       TEXT         NOT NULL,
    payload        LONGBLOB     NOT NULL,
    headers        LONGTEXT     NOT NULL,
    attempts       INT          NOT NULL,
    times          INT          NOT NULL DEFAULT 1,
    first_parked   BIGINT       NOT NULL,
    last_parked    BIGINT       NOT NULL,
    KEY dead_letters_consumer (consumer, first_parked, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_schema (
    version    INT    NOT NULL PRIMARY KEY,
    works_with INT    NOT NULL,
    applied_at BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';
INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (1, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
