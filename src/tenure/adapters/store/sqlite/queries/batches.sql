-- name: was_committed
-- Whether a recent batch applied the change with this id.
SELECT 1 FROM batch WHERE instr(' ' || changes || ' ', ' ' || :id || ' ') > 0 LIMIT 1
