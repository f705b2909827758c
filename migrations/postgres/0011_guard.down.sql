DROP PROCEDURE txonce_sweep;
DROP TRIGGER txonce_guard ON processed_messages;
DROP FUNCTION txonce_guard;
ALTER TABLE txonce_sweep DROP COLUMN clock;
DELETE FROM txonce_schema WHERE version = 11;
