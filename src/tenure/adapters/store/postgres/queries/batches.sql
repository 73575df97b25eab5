-- name: was_committed
-- Whether a recent batch applied the change with this id.
SELECT 1 FROM batch WHERE position(' ' || $1::text || ' ' IN ' ' || changes || ' ') > 0 LIMIT 1

-- name: forget_batches
-- Deletes the batches before this time; their changes can no longer be looked up.
DELETE FROM batch WHERE at < $1
