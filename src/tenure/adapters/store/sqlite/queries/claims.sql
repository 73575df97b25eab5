-- name: workers_gone
-- Workers of open operations that have no live lease; one step of the index for each worker, however many operations it has.
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
-- The oldest open operations of one worker, but for those that follow a plan of a JSON list.
SELECT id
FROM operation
WHERE worker = :worker AND ended_at IS NULL AND plan NOT IN (SELECT value FROM json_each(:but))
ORDER BY id
LIMIT :limit

-- name: claim_intents
-- Gives the intents of a JSON list of operations, but for burned ones, the token that their operation is about to get.
-- What may have been called is unknown from now on; nobody has called what is PENDING.
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
-- Gives the operations of a JSON list to a worker under their next token.
UPDATE operation
SET worker = :worker,
    token = token + 1,
    revision = revision + 1,
    state = CASE state WHEN 'PENDING' THEN 'RUNNING' ELSE state END
WHERE id IN (SELECT value FROM json_each(:ids))
RETURNING id, token, due_at

-- name: list_due
-- Open operations of a worker whose time has come.
SELECT id, token, due_at FROM operation WHERE worker = :worker AND ended_at IS NULL AND due_at <= :now ORDER BY id

-- name: drop_worker_leases
-- Whoever holds the file's lock is alone: every earlier worker is dead.
DELETE FROM lease WHERE name >= 'worker/' AND name < 'worker0'

-- name: lapse_leader_leases
-- Every earlier leader is dead too; its token stays, so that the next one's is greater.
UPDATE lease SET until = 0.0 WHERE name >= 'leader/' AND name < 'leader0'
