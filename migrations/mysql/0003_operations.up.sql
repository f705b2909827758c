-- The tables of migrations/postgres, in the types of MySQL and MariaDB.
CREATE TABLE IF NOT EXISTS operator_actions (
    id           BINARY(16)     NOT NULL PRIMARY KEY,
    kind         VARCHAR(32)    NOT NULL,
    consumer     VARBINARY(255) NOT NULL,
    who          TEXT           NOT NULL,
    reason       TEXT           NOT NULL,
    filter       TEXT           NOT NULL,
    new_key      TEXT           NOT NULL,
    as_new       TINYINT        NOT NULL,
    rate         DOUBLE         NOT NULL,
    max_failures INT            NOT NULL,
    requested_at BIGINT         NOT NULL,
    next_at      BIGINT         NOT NULL,
    ended_at     BIGINT,
    note         TEXT           NOT NULL,
    KEY operator_actions_requested (requested_at, id),
    KEY operator_actions_open (consumer, ended_at, requested_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS operator_results (
    action      BINARY(16)  NOT NULL,
    letter      BINARY(16)  NOT NULL,
    number      BIGINT      NOT NULL,
    outcome     VARCHAR(32) NOT NULL,
    cause       VARCHAR(32) NOT NULL,
    error       TEXT        NOT NULL,
    tries       INT         NOT NULL,
    taken_until BIGINT      NOT NULL,
    at          BIGINT      NOT NULL,
    PRIMARY KEY (action, letter),
    KEY operator_results_number (action, outcome, number),
    KEY operator_results_letter (letter, outcome)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_passes (
    one      TINYINT NOT NULL PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    ended_at BIGINT
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';
INSERT INTO txonce_passes (one) VALUES (1) ON DUPLICATE KEY UPDATE one = one;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (3, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
