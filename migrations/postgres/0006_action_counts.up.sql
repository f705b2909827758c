-- How many letters of a replay that has ended have each outcome, as JSON: they do not change any more. Empty: they are counted. A list of actions
-- would read all results of each.
ALTER TABLE operator_actions ADD COLUMN counts text NOT NULL DEFAULT '';

INSERT INTO txonce_schema (version, works_with) VALUES (6, 1);
