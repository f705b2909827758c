DROP TABLE txonce_slot_settled, txonce_slots, txonce_shards, txonce_relays, outbox_sent, outbox_parked, outbox_held, outbox_delayed, outbox_messages;
DROP SEQUENCE txonce_slot_confirmed, outbox_seq, outbox_generation;
DELETE FROM txonce_schema WHERE version = 2;
