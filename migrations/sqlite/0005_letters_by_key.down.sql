DROP INDEX dead_letters_consumer;
CREATE INDEX dead_letters_consumer ON dead_letters (consumer, first_parked, id);
DROP INDEX dead_letters_message;
DELETE FROM txonce_schema WHERE version = 5;
