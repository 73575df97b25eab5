-- name: list_operations
-- Operations of a tenant after an id, oldest first, of the states named in a JSON list if there are any.
SELECT *
FROM operation
WHERE tenant = :tenant
  AND id > :after
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY id
LIMIT :limit

-- name: load_journal
-- The journal of one operation, in order.
SELECT * FROM journal WHERE operation = ? ORDER BY seq

-- name: load_intents
-- The intents of one operation, by step.
SELECT * FROM intent WHERE operation = ? ORDER BY step

-- name: plans_of_open_operations
-- Digests of the plans of open operations.
SELECT DISTINCT plan FROM operation WHERE ended_at IS NULL ORDER BY plan

-- name: list_open
-- Open operations of all tenants after an id.  Without the hint SQLite scans every ended operation.
SELECT *
FROM operation INDEXED BY operation_open
WHERE ended_at IS NULL
  AND id > :after
  AND (:states IS NULL OR state IN (SELECT value FROM json_each(:states)))
ORDER BY id
LIMIT :limit
