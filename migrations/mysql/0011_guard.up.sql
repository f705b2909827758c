-- Nothing here: only PostgreSQL has a trigger that refuses foreign deletions of keys. The numbers are the same on all databases.
INSERT INTO txonce_schema (version, works_with, applied_at)
VALUES (11, 1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE version = version;
