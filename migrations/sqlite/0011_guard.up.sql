-- Nothing here: only PostgreSQL has a trigger that refuses foreign deletions of keys. The numbers are the same on all databases.
INSERT INTO txonce_schema (version, works_with, applied_at) VALUES (11, 1, CAST(unixepoch('subsec') * 1000000 AS INTEGER));
