-- name: list_events
-- Outbox rows after the one at position $1, at most $2, in an order that later commits only add to: by transaction, and
-- none of a transaction that began after the oldest one that is still open.
SELECT position, tenant, agent, operation, type, at, body
FROM outbox
WHERE (written_by, position) > (
    SELECT coalesce(max(seen.written_by), '-9223372036854775808'), $1::bigint
    FROM outbox AS seen
    WHERE seen.position = $1::bigint
)
  AND written_by < pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY written_by, position
LIMIT $2

-- name: knows_event
-- Whether there is a row at this position.
SELECT 1 FROM outbox WHERE position = $1
