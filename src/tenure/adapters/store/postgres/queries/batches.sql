-- name: was_committed
-- Whether one of the batches still kept applied the change with this id.
SELECT 1 FROM batch WHERE position(' ' || $1::text || ' ' IN ' ' || changes || ' ') > 0 LIMIT 1

-- name: forget_batches
-- Batches that ended before this time can no longer be asked for.
DELETE FROM batch WHERE at < $1
