DELETE FROM txonce_schema WHERE version = 10;
DROP TABLE IF EXISTS source_positions;
