DELETE FROM txonce_schema WHERE version = 11;
