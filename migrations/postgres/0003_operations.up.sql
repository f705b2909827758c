-- What operators have done and requested: who, what, why and how often.
CREATE TABLE operator_actions (
    id           uuid             NOT NULL PRIMARY KEY,
    kind         text             NOT NULL, -- replay, discard, unpark, discard_outbox
    consumer     text COLLATE "C" NOT NULL, -- empty: it is about the outbox
    who          text             NOT NULL,
    reason       text             NOT NULL,
    filter       text             NOT NULL, -- JSON, for people
    new_key      text             NOT NULL, -- of replay; empty: none
    as_new       boolean          NOT NULL,
    rate         float8           NOT NULL, -- of replay: letters a second; 0: no limit
    max_failures integer          NOT NULL, -- of replay; 0: no limit
    requested_at timestamptz      NOT NULL,
    next_at      timestamptz      NOT NULL, -- of replay: no letter is taken before, because of rate
    ended_at     timestamptz,
    note         text             NOT NULL
);
CREATE INDEX operator_actions_requested ON operator_actions (requested_at, id);
CREATE INDEX operator_actions_open ON operator_actions (consumer, requested_at) WHERE ended_at IS NULL;

-- The dead letters of an action, and what happened to each. The transaction that processes a letter writes its outcome, once.
CREATE TABLE operator_results (
    action      uuid        NOT NULL,
    letter      uuid        NOT NULL,
    number      bigint      NOT NULL, -- the order of taking letters
    outcome     text        NOT NULL, -- empty: it waits
    cause       text        NOT NULL,
    error       text        NOT NULL,
    tries       integer     NOT NULL, -- how often a worker has taken it
    taken_until timestamptz NOT NULL, -- no other worker takes it before
    at          timestamptz NOT NULL,
    PRIMARY KEY (action, letter)
);
CREATE INDEX operator_results_number ON operator_results (action, outcome, number);
CREATE INDEX operator_results_letter ON operator_results (letter) WHERE outcome = '';

-- One row: when a sweep last reached the end of processed_messages.
CREATE TABLE txonce_passes (
    one     boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
    ended_at timestamptz
) WITH (fillfactor = 50);
INSERT INTO txonce_passes DEFAULT VALUES;

INSERT INTO txonce_schema (version, works_with) VALUES (3, 1);
