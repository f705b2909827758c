DELETE FROM txonce_schema WHERE version = 3;
DROP TABLE IF EXISTS txonce_passes;
DROP TABLE IF EXISTS operator_results;
DROP TABLE IF EXISTS operator_actions;
