ALTER TABLE operator_actions DROP COLUMN counts;
DELETE FROM txonce_schema WHERE version = 6;
