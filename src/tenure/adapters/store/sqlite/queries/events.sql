-- name: list_events
-- Outbox rows after a position, in commit order: one writer gives the positions.
SELECT * FROM outbox WHERE position > :after ORDER BY position LIMIT :limit
