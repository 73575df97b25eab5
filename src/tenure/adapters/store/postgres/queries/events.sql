-- name: count_events
-- The events of each tenant up to position $1: how many, and the position of the first.
SELECT tenant, count(*), min(position) FROM outbox WHERE position <= $1 GROUP BY tenant

-- name: begin_epoch
-- Raises the counters of agents' events into the epoch that starts at $1; an epoch has $2 numbers.  Recorded as batch $3.
-- Counters are locked in the order of their names, as everywhere, so that no two transactions deadlock.
WITH locked AS MATERIALIZED (
    SELECT name FROM counter WHERE starts_with(name, 'event/') ORDER BY name FOR UPDATE
),
raised AS (
    UPDATE counter SET value = $1::bigint + counter.value % $2::bigint FROM locked WHERE counter.name = locked.name
)
INSERT INTO batch (id, at, changes) VALUES ($3, $4, '')
