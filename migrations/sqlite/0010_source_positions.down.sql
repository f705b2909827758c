DROP TABLE source_positions;
DELETE FROM txonce_schema WHERE version = 10;
