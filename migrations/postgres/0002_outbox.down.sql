DROP TABLE txonce_shards, txonce_relays, outbox_sent, outbox_parked, outbox_held, outbox_delayed, outbox_messages;
DROP SEQUENCE outbox_seq;
DELETE FROM txonce_schema WHERE version = 2;
