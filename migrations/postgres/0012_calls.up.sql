-- What is known of the tries of calls to other systems that are not settled yet (package calls). A settled call has a row in
-- processed_messages, and none here.
CREATE TABLE txonce_calls (
    call_key    uuid        NOT NULL PRIMARY KEY, -- the key of the claim that settles the call
    fingerprint bigint      NOT NULL, -- of the payload
    first_try   timestamptz NOT NULL, -- when the first of the unanswered tries began
    last_try    timestamptz NOT NULL, -- when the latest try began
    until       timestamptz NOT NULL, -- when the latest try has ended, whatever became of its process
    unanswered  integer     NOT NULL, -- tries that may have reached the other system, and whose answer is not known
    token       bigint      NOT NULL, -- random; changes with each try, so that only one process begins the next one
    verdict     smallint    NOT NULL, -- what is known of all tries: 0 nothing, 1 the call has not happened, 2 it has happened
    result      bytea                 -- of a call that has happened
);

INSERT INTO txonce_schema (version, works_with) VALUES (12, 1);
