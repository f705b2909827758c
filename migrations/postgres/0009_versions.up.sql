-- The highest version of each object that a handler has asked Newer about. A row is only as old as its object's last change:
-- rows of objects about which no older message can arrive any more may be deleted.
CREATE TABLE entity_versions (
    object     text COLLATE "C" NOT NULL PRIMARY KEY,
    version    bigint           NOT NULL,
    changed_at timestamptz      NOT NULL
) WITH (fillfactor = 80);

INSERT INTO txonce_schema (version, works_with) VALUES (9, 1);
