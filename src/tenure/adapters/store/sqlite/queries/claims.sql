-- name: dead_workers
-- Workers of open operations that have no live lease; one index step for each worker, not for each operation.
WITH RECURSIVE found (worker) AS (
    SELECT min(worker) FROM operation WHERE ended_at IS NULL
    UNION ALL
    SELECT (SELECT min(worker) FROM operation WHERE ended_at IS NULL AND worker > found.worker)
    FROM found
    WHERE found.worker IS NOT NULL
)
SELECT worker
FROM found
WHERE worker IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM lease WHERE name = 'worker/' || worker AND until >= :now)

-- name: open_of_worker
-- The oldest open operations of one worker, except those whose plan is in a JSON list.
SELECT id
FROM operation
WHERE worker = :worker AND ended_at IS NULL AND plan NOT IN (SELECT value FROM json_each(:except_plans))
ORDER BY id
LIMIT :limit

-- name: claim_intents
-- Gives the intents of a JSON list of operations, except burned ones, the next token of their operation.
-- The outcome of their running calls is unknown from now on; a PENDING operation has no calls.
UPDATE intent
SET token = operation.token + 1,
    unknown_since = CASE
        WHEN operation.state = 'PENDING' OR intent.state NOT IN ('INTENDED', 'REMOVING') THEN unknown_since
        ELSE coalesce(unknown_since, :now)
    END
FROM operation
WHERE operation.id = intent.operation
  AND intent.operation IN (SELECT value FROM json_each(:ids))
  AND intent.state <> 'BURNED'

-- name: claim_operations
-- Gives the operations of a JSON list to a worker, with their next token.
UPDATE operation
SET worker = :worker,
    token = token + 1,
    revision = revision + 1,
    state = CASE state WHEN 'PENDING' THEN 'RUNNING' ELSE state END
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, token, due_at

-- name: list_due
-- Open operations of a worker that are due.
SELECT id, token, due_at FROM operation WHERE worker = :worker AND ended_at IS NULL AND due_at <= :now ORDER BY id

-- name: drop_worker_leases
-- Deletes the leases of all workers: the process with the file's lock is alone, so every earlier worker is dead.
DELETE FROM lease WHERE name >= 'worker/' AND name < 'worker0'

-- name: lapse_leader_leases
-- Expires the leases of all leaders, which are dead too; the tokens stay, so that the next token is greater.
UPDATE lease SET until = 0.0 WHERE name >= 'leader/' AND name < 'leader0'
