DROP TABLE entity_versions;
DELETE FROM txonce_schema WHERE version = 9;
