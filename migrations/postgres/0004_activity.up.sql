-- What consumers have done lately, for dashboards. It is never evidence: the rows are counters of processes that may have ended.
CREATE TABLE consumer_activity (
    minute   bigint           NOT NULL, -- since 1970 UTC, by the worker's clock
    consumer text COLLATE "C" NOT NULL,
    node     text COLLATE "C" NOT NULL, -- the worker
    counts   text             NOT NULL, -- JSON: messages by outcome, and why the worker is paused
    PRIMARY KEY (minute, consumer, node)
) WITH (fillfactor = 50);

INSERT INTO txonce_schema (version, works_with) VALUES (4, 1);
