-- How far a consumer has handled the messages of a partition. The broker keeps this too, but a database can go back, as after a failover
-- to a standby that lacks the latest commits: then the partition is read again from here. source is all that tells two positions of a
-- consumer apart, such as the cluster, the group and the topic. rewound_*: the last time that this happened; NULL: never.
CREATE TABLE source_positions (
    consumer     text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,
    partition    integer          NOT NULL,
    log_id       text COLLATE "C" NOT NULL, -- the identity of the log, such as Kafka's topic ID
    position     bigint           NOT NULL, -- the messages before this offset are handled
    epoch        bigint           NOT NULL, -- one more for each session
    open         boolean          NOT NULL, -- a session has not ended in order
    suspect      bigint           NOT NULL, -- the message that may have killed processes, if tries > 0
    tries        integer          NOT NULL,
    rewound_at   timestamptz,
    rewound_from bigint,
    rewound_lost bigint,
    rewound_to   bigint,
    updated      timestamptz      NOT NULL,
    PRIMARY KEY (consumer, source, partition)
) WITH (fillfactor = 50);

INSERT INTO txonce_schema (version, works_with) VALUES (10, 1);
