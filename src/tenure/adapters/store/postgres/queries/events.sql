-- name: list_events
-- Outbox rows after position $1, at most $2, in an order that later commits only add to: none of a transaction that began
-- after the oldest one that is still open.
SELECT position, tenant, agent, operation, type, at, body, sequence
FROM outbox
WHERE position > $1
  AND position < (
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + moved) << 16 FROM horizon
  )
ORDER BY position
LIMIT $2
