DROP TABLE txonce_shards;
DROP TABLE txonce_relays;
DROP TABLE outbox_sent;
DROP TABLE outbox_parked;
DROP TABLE outbox_held;
DROP TABLE outbox_delayed;
DROP TABLE outbox_messages;
DROP TABLE outbox_seq;
DELETE FROM txonce_schema WHERE version = 2;
