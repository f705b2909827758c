-- When each of these waits was set, by the database's clock. A wait whose beginning lies in the future was set before the clock was set back:
-- a relay's hold then begins again, and a retry is due. NULL: an older program has written the row.
ALTER TABLE txonce_relays ADD COLUMN set_at timestamptz;
ALTER TABLE outbox_held ADD COLUMN set_at timestamptz;
ALTER TABLE outbox_messages ADD COLUMN failed_at timestamptz; -- of a message with retry_at

INSERT INTO txonce_schema (version, works_with) VALUES (8, 1);
