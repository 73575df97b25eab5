-- Only adds: the epoch of a plane, which rises with every restore; a token is good in the one it was issued in.

ALTER TABLE plane ADD COLUMN epoch INTEGER;
-- Why nothing may move until an operator confirms; empty: nothing holds it.
ALTER TABLE plane ADD COLUMN held TEXT;
ALTER TABLE token ADD COLUMN epoch INTEGER;
