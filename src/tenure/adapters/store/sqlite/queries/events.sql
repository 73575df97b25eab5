-- name: list_events
-- Outbox rows after a position, in commit order: one writer gives the positions.
SELECT * FROM outbox WHERE position > :after ORDER BY position LIMIT :limit

-- name: newest_event
-- The last position that list_events would return.
SELECT coalesce(max(position), 0) FROM outbox

-- name: count_events
-- The events of each tenant up to a position: how many, and the position of the first.
SELECT tenant, count(*), min(position) FROM outbox WHERE position <= :until GROUP BY tenant

-- name: begin_epoch
-- Raises the counters of the outbox and of agents' events into the epoch that starts at :start.
UPDATE counter
SET value = :start + value % :span
WHERE name = 'outbox' OR (name >= 'event/' AND name < 'event0')
