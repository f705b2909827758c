DELETE FROM txonce_schema WHERE version = 12;
DROP TABLE IF EXISTS txonce_calls;
