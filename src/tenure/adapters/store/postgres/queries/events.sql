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

-- name: newest_event
-- The last position that list_events would give.
SELECT coalesce(max(position), 0)
FROM outbox
WHERE position < (
    SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + moved) << 16 FROM horizon
  )

-- name: begin_epoch
-- Raises the numbers of each agent's events into an epoch that starts at $1, of which each has $2, and notes it under $3.
-- Counters are held in the order of their names, as by everybody.
WITH held AS MATERIALIZED (
    SELECT name FROM counter WHERE starts_with(name, 'event/') ORDER BY name FOR UPDATE
),
raised AS (
    UPDATE counter SET value = $1::bigint + counter.value % $2::bigint FROM held WHERE counter.name = held.name
)
INSERT INTO batch (id, at, changes) VALUES ($3, $4, '')
