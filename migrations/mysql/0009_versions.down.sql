DELETE FROM txonce_schema WHERE version = 9;
DROP TABLE IF EXISTS entity_versions;
