DROP INDEX dead_letters_message;
DELETE FROM txonce_schema WHERE version = 5;
