-- name: list_operations
-- Operations of a tenant ($1) after an id ($3), oldest first, of the states in $2 if there are any.
SELECT *
FROM operation
WHERE tenant = $1 AND id > $3 AND ($2::text[] IS NULL OR state = ANY ($2::text[]))
ORDER BY id
LIMIT $4

-- name: load
-- One operation, its journal in order and its intents by step, from one snapshot.
SELECT
    operation,
    ARRAY(SELECT journal FROM journal WHERE journal.operation = $1 ORDER BY seq),
    ARRAY(SELECT intent FROM intent WHERE intent.operation = $1 ORDER BY step)
FROM operation
WHERE id = $1

-- name: plans_of_open_operations
-- Digests of the plans of open operations.
SELECT DISTINCT plan FROM operation WHERE ended_at IS NULL ORDER BY plan

-- name: list_open
-- Open operations of all tenants after an id ($2), oldest first, of the states in $1 if there are any.
SELECT *
FROM operation
WHERE ended_at IS NULL AND id > $2 AND ($1::text[] IS NULL OR state = ANY ($1::text[]))
ORDER BY id
LIMIT $3
