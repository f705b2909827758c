DROP TABLE IF EXISTS txonce_schema;
DROP TABLE IF EXISTS dead_letters;
DROP TABLE IF EXISTS txonce_sweep;
DROP TABLE IF EXISTS txonce_sources;
DROP TABLE IF EXISTS txonce_windows;
DROP TABLE IF EXISTS processed_messages;
