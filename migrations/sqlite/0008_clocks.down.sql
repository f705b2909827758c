ALTER TABLE txonce_relays DROP COLUMN set_at;
ALTER TABLE outbox_held DROP COLUMN set_at;
ALTER TABLE outbox_messages DROP COLUMN failed_at;
DELETE FROM txonce_schema WHERE version = 8;
