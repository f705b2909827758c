-- The tables of migrations/postgres, in the types of MySQL and MariaDB; see 0001. Names and keys are bytes, whatever the connection's
-- character set. key_hash is SHA-256 of key, which may be longer than an index takes. size is about what a message weighs, in
-- bytes, so that nobody reads more payloads than wanted.
CREATE TABLE IF NOT EXISTS outbox_messages (
    shard       SMALLINT       NOT NULL,
    seq         BIGINT         NOT NULL AUTO_INCREMENT,
    id          VARBINARY(255) NOT NULL,
    topic       VARBINARY(255) NOT NULL,
    `key`       LONGBLOB,
    key_hash    BINARY(32),
    payload     LONGBLOB       NOT NULL,
    headers     LONGBLOB,
    size        BIGINT         NOT NULL,
    enqueued_at BIGINT         NOT NULL,
    not_before  BIGINT,
    attempts    INT            NOT NULL DEFAULT 0,
    retry_at    BIGINT,
    error       BLOB,
    PRIMARY KEY (shard, seq),
    KEY outbox_messages_seq (seq) -- AUTO_INCREMENT wants it; not UNIQUE, which would lock gaps
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS outbox_delayed (
    not_before  BIGINT         NOT NULL,
    seq         BIGINT         NOT NULL AUTO_INCREMENT, -- numbers of its own: a message gets its seq when its time has come
    shard       SMALLINT       NOT NULL,
    id          VARBINARY(255) NOT NULL,
    topic       VARBINARY(255) NOT NULL,
    `key`       LONGBLOB,
    key_hash    BINARY(32),
    payload     LONGBLOB       NOT NULL,
    headers     LONGBLOB,
    size        BIGINT         NOT NULL,
    enqueued_at BIGINT         NOT NULL,
    PRIMARY KEY (not_before, seq),
    KEY outbox_delayed_seq (seq),
    KEY outbox_delayed_topic (topic)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS outbox_held (
    shard    SMALLINT   NOT NULL,
    key_hash BINARY(32) NOT NULL,
    from_seq BIGINT     NOT NULL,
    until    BIGINT, -- NULL: see outbox_parked
    PRIMARY KEY (shard, key_hash)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS outbox_parked (
    seq         BIGINT         NOT NULL PRIMARY KEY,
    shard       SMALLINT       NOT NULL,
    id          VARBINARY(255) NOT NULL,
    topic       VARBINARY(255) NOT NULL,
    `key`       LONGBLOB,
    key_hash    BINARY(32),
    payload     LONGBLOB       NOT NULL,
    headers     LONGBLOB,
    size        BIGINT         NOT NULL,
    enqueued_at BIGINT         NOT NULL,
    not_before  BIGINT,
    attempts    INT            NOT NULL,
    error       BLOB           NOT NULL,
    behind      BIGINT,
    waiting     TINYINT        NOT NULL DEFAULT 0,
    keep_order  TINYINT        NOT NULL DEFAULT 0,
    parked_at   BIGINT         NOT NULL,
    KEY outbox_parked_key (shard, key_hash, waiting, seq),
    KEY outbox_parked_topic (topic, waiting)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS outbox_sent (
    sent_at     BIGINT         NOT NULL,
    seq         BIGINT         NOT NULL,
    id          VARBINARY(255) NOT NULL,
    topic       VARBINARY(255) NOT NULL,
    `key`       LONGBLOB,
    payload     LONGBLOB       NOT NULL,
    headers     LONGBLOB,
    enqueued_at BIGINT         NOT NULL,
    PRIMARY KEY (sent_at, seq)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_relays (
    owner BINARY(16) NOT NULL PRIMARY KEY,
    name  BLOB       NOT NULL,
    until BIGINT     NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';

CREATE TABLE IF NOT EXISTS txonce_shards (
    shard SMALLINT NOT NULL PRIMARY KEY,
    owner BINARY(16),
    token BIGINT   NOT NULL DEFAULT 0
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';
INSERT INTO txonce_shards (shard)
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 63) SELECT i FROM n WHERE i >= 0
ON DUPLICATE KEY UPDATE txonce_shards.shard = txonce_shards.shard;

-- Locks for transactions that exclude each other by a key, which has one of slots 0 to 1023. Rows, because GET_LOCK belongs to a
-- session and not to a transaction. Slot 1024 is for those who take shards, 1025 for those who move delayed messages.
CREATE TABLE IF NOT EXISTS outbox_locks (
    slot SMALLINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin COMMENT = 'txonce';
INSERT INTO outbox_locks (slot)
WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 32)
SELECT a.i * 32 + b.i FROM n AS a CROSS JOIN n AS b WHERE b.i < 32 AND (a.i < 32 OR b.i < 2)
ON DUPLICATE KEY UPDATE outbox_locks.slot = outbox_locks.slot;

INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (2, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
