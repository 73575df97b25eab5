-- name: claim
-- At time $2 gives worker $1 the oldest open operations, at most $3, of workers without a live lease, with their next token.
-- Their intents, except burned ones, get the same token.  The outcome of their running calls is unknown from now on; a
-- PENDING operation has no calls.  The claim is recorded as batch $4.  Leases are compared with the server's own clock, or
-- with time $5 if that is not NULL.  Operations of the plans in $6 are not claimed.
-- An operation is skipped if another transaction has locked one of its rows, or has recorded something since this statement
-- began: this statement does not see the intents of that record and could not fence them.
WITH RECURSIVE workers (worker) AS (
    (SELECT worker FROM operation WHERE ended_at IS NULL ORDER BY worker LIMIT 1)
    UNION ALL
    SELECT (
        SELECT operation.worker
        FROM operation
        WHERE ended_at IS NULL AND operation.worker > workers.worker
        ORDER BY operation.worker
        LIMIT 1
    )
    FROM workers
    WHERE workers.worker IS NOT NULL
),
lease_time AS MATERIALIZED (
    SELECT coalesce($5::double precision, extract(epoch FROM pg_catalog.clock_timestamp())::double precision) AS at
),
dead_workers AS MATERIALIZED (
    SELECT worker
    FROM workers
    CROSS JOIN lease_time
    WHERE worker IS NOT NULL
      AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.name = 'worker/' || workers.worker AND lease.until >= lease_time.at)
),
oldest AS MATERIALIZED (
    SELECT own.id, own.worker, own.revision
    FROM dead_workers
    CROSS JOIN LATERAL (
        SELECT id, worker, revision
        FROM operation
        WHERE operation.worker = dead_workers.worker AND ended_at IS NULL AND plan <> ALL ($6::text[])
        ORDER BY id
        LIMIT $3
    ) AS own
    ORDER BY own.id
    LIMIT $3
),
locked_operations AS MATERIALIZED (
    SELECT operation.id, operation.token, operation.state
    FROM oldest
    JOIN operation USING (id)
    WHERE operation.ended_at IS NULL AND operation.worker = oldest.worker AND operation.revision = oldest.revision
    ORDER BY operation.id
    FOR UPDATE OF operation SKIP LOCKED
),
locked_intents AS MATERIALIZED (
    SELECT intent.operation, intent.step
    FROM locked_operations
    JOIN intent ON intent.operation = locked_operations.id
    WHERE intent.state <> 'BURNED'
    ORDER BY intent.operation, intent.step
    FOR UPDATE OF intent SKIP LOCKED
),
incomplete AS MATERIALIZED (
    SELECT intent.operation
    FROM locked_operations
    JOIN intent ON intent.operation = locked_operations.id
    WHERE intent.state <> 'BURNED' AND (intent.operation, intent.step) NOT IN (SELECT operation, step FROM locked_intents)
),
chosen AS MATERIALIZED (
    SELECT id, token, state FROM locked_operations WHERE id NOT IN (SELECT operation FROM incomplete)
),
claimed_intents AS (
    UPDATE intent
    SET token = chosen.token + 1,
        unknown_since = CASE
            WHEN chosen.state = 'PENDING' OR intent.state NOT IN ('INTENDED', 'REMOVING') THEN intent.unknown_since
            ELSE coalesce(intent.unknown_since, $2)
        END
    FROM chosen
    WHERE intent.operation = chosen.id AND intent.state <> 'BURNED'
),
recorded AS (
    INSERT INTO batch (id, at, changes)
    SELECT $4, $2, coalesce(string_agg('claim:' || id, ' '), '') FROM chosen
)
UPDATE operation
SET worker = $1,
    token = operation.token + 1,
    revision = operation.revision + 1,
    state = CASE operation.state WHEN 'PENDING' THEN 'RUNNING' ELSE operation.state END
FROM chosen
WHERE operation.id = chosen.id
RETURNING operation.id, operation.token, operation.due_at

-- name: claimed
-- The operations of a claim that was recorded as batch $1, as far as worker $2 still has them.
SELECT operation.id, operation.token, operation.due_at
FROM batch
CROSS JOIN LATERAL string_to_table(batch.changes, ' ') AS word
JOIN operation ON operation.id = substr(word, 7)
WHERE batch.id = $1 AND operation.worker = $2 AND operation.ended_at IS NULL

-- name: list_due
-- Open operations of worker $1 that are due at time $2.
SELECT id, token, due_at FROM operation WHERE worker = $1 AND ended_at IS NULL AND due_at <= $2 ORDER BY id
