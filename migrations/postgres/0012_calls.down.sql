DROP TABLE txonce_calls;
DELETE FROM txonce_schema WHERE version = 12;
