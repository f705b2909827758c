-- The table of migrations/postgres.
CREATE TABLE IF NOT EXISTS source_positions (
    consumer     VARBINARY(255)  NOT NULL,
    source       VARBINARY(1024) NOT NULL,
    `partition`  INT             NOT NULL,
    log_id       VARBINARY(255)  NOT NULL,
    position     BIGINT          NOT NULL,
    epoch        BIGINT          NOT NULL,
    open         TINYINT         NOT NULL,
    suspect      BIGINT          NOT NULL,
    tries        INT             NOT NULL,
    rewound_at   BIGINT,
    rewound_from BIGINT,
    rewound_lost BIGINT,
    rewound_to   BIGINT,
    updated      BIGINT          NOT NULL,
    PRIMARY KEY (consumer, source, `partition`)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (10, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
