DROP TABLE consumer_activity;
DELETE FROM txonce_schema WHERE version = 4;
