-- The table of migrations/postgres.
CREATE TABLE source_positions (
    consumer     TEXT    NOT NULL,
    source       TEXT    NOT NULL,
    partition    INTEGER NOT NULL,
    log_id       TEXT    NOT NULL,
    position     INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    open         INTEGER NOT NULL,
    suspect      INTEGER NOT NULL,
    tries        INTEGER NOT NULL,
    rewound_at   INTEGER,
    rewound_from INTEGER,
    rewound_lost INTEGER,
    rewound_to   INTEGER,
    updated      INTEGER NOT NULL,
    PRIMARY KEY (consumer, source, partition)
) STRICT, WITHOUT ROWID;

INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (10, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
