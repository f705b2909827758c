-- What happened to one key is asked for by pages, by explain and by filters. A hash takes a text of any length.
CREATE INDEX dead_letters_message ON dead_letters USING hash (message_id);

INSERT INTO txonce_schema (version, works_with) VALUES (5, 1);
