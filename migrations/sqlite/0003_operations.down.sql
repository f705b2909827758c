DROP TABLE txonce_passes;
DROP TABLE operator_results;
DROP TABLE operator_actions;
DELETE FROM txonce_schema WHERE version = 3;
