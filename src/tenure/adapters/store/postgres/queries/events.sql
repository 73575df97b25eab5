-- name: count_events
-- The events of each tenant up to position $1: how many, and the position of the first.
SELECT tenant, count(*), min(position) FROM outbox WHERE position <= $1 GROUP BY tenant

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
