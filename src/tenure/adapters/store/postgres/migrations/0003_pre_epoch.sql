-- The epoch of a plane rises with every restore; a token is good in the one it was issued in.

ALTER TABLE plane ADD COLUMN epoch BIGINT;
-- Why nothing may move until an operator confirms; empty: nothing holds it.
ALTER TABLE plane ADD COLUMN held TEXT COLLATE "C";
ALTER TABLE token ADD COLUMN epoch BIGINT;
