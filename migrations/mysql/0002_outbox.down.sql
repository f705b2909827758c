DELETE FROM txonce_schema WHERE version = 2;
DROP TABLE IF EXISTS outbox_locks;
DROP TABLE IF EXISTS txonce_shards;
DROP TABLE IF EXISTS txonce_relays;
DROP TABLE IF EXISTS outbox_sent;
DROP TABLE IF EXISTS outbox_parked;
DROP TABLE IF EXISTS outbox_held;
DROP TABLE IF EXISTS outbox_delayed;
DROP TABLE IF EXISTS outbox_messages;
