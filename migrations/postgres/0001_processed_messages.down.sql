DROP TABLE txonce_schema;
DROP TABLE dead_letters;
DROP TABLE txonce_sweep;
DROP TABLE txonce_sources;
DROP TABLE txonce_windows;
DROP TABLE processed_messages;
