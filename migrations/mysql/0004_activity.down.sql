DELETE FROM txonce_schema WHERE version = 4;
DROP TABLE IF EXISTS consumer_activity;
