-- The epoch of a plane rises with every restore; a token is good under the one it was issued in.

ALTER TABLE plane ADD COLUMN epoch INTEGER;
-- Why nothing may move until an operator confirms; empty: nothing holds it.
ALTER TABLE plane ADD COLUMN held TEXT;
ALTER TABLE token ADD COLUMN epoch INTEGER;
